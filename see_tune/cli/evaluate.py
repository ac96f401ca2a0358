"""`see-tune evaluate MODEL --dataset NAME`: the retrieval metrics of a trained model on a dataset's test classes."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from see_tune.cli.best import Tracking
from see_tune.cli.options import AsJson, DatasetRoot, HomeFolder, dataset_title, known_dataset, refuse_needless_root


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="models:/see-tune.DATASET@champion, or a training's folder.")],
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NAME", help="Default: the one it was trained on.", callback=dataset_title)
    ] = None,
    root: DatasetRoot = None,
    nmi: Annotated[bool, typer.Option("--nmi", help="Also NMI over k-means clusters; minutes on a large dataset.")] = False,
    tracking: Tracking = "auto",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model on the test classes of a dataset. Recall@k, MAP@R and R-precision equal what the study reported for it."""
    from see_tune.home import find_home
    from see_tune.machine import check_faiss
    from see_tune.spec.models import DatasetSpec, SplitSpec
    from see_tune.stored import open_model
    from see_tune.training.measure import measure_trained

    check_faiss()
    stored = open_model(model, find_home(home), tracking)
    own = stored.spec.dataset
    chosen = own if dataset in (None, own.called) else DatasetSpec(name=known_dataset(dataset))
    refuse_needless_root(chosen.name, root)
    if root is not None:
        chosen = chosen.model_copy(update={"root": str(root)})
    spec = stored.spec.model_copy(update={"dataset": chosen, "split": SplitSpec(kind="test")})
    threads = len(os.sched_getaffinity(0))
    measured = measure_trained(
        stored.model, spec, stored.preprocessing, name=model, home=find_home(home), threads=threads, nmi=nmi
    )
    found, here, before = measured.metrics, measured.measured_on, stored.trained_on
    shared = here.shared_with(before) if before else None
    if before and before.fingerprint != here.fingerprint:
        print(
            f"note: another dataset than the model was trained on (fingerprint {here.fingerprint}, not {before.fingerprint}), so "
            f"that its test classes may be training classes of the model: {shared:,} of {len(here):,} bear the name of one",
            file=sys.stderr,
        )
    if as_json:
        about = {"model": model, "dataset": chosen.called, "fingerprint": here.fingerprint}
        trained = {"trained_on_fingerprint": before.fingerprint if before else None, "classes_trained_on": shared}
        print(json.dumps({**about, **trained, **found}, indent=2))
        return
    print(f"{model} on the test classes of {chosen.called}")
    for name, value in found.items():
        print(f"  {name:<26} {_shown(name, value)}")


def _shown(name: str, value: float) -> str:
    """Counts whole, shares in percent, and the variance, which is no share, as it is."""
    if name.startswith("queries"):
        return f"{value:.0f}"
    return f"{value:.4f}" if name == "embedding_variance" else f"{100 * value:.2f}"
