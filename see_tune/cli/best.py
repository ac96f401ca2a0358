"""`see-tune best` and `see-tune promote`: which model is champion of which dataset, and a champion by hand."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from see_tune.cli.options import AsJson, Dataset, HomeFolder, dataset_title

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from mlflow import MlflowClient

    from see_tune.tracking.registry import RegisteredVersion

Tracking = Annotated[
    str,
    typer.Option("--tracking", metavar="URI", help="local, or a server's http(s) URI; auto: MLFLOW_TRACKING_URI, else local."),
]


def best(
    dataset: Annotated[
        str | None, typer.Argument(metavar="DATASET", help="Every version of this one.", callback=dataset_title)
    ] = None,
    tracking: Tracking = "auto",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the champions, or all registered versions of a dataset. Validation chooses; the test number is a report."""
    from see_tune.tracking.registry import CHAMPION, read_versions

    with _registry(home, tracking) as client:
        versions = read_versions(client, dataset)
    shown = [version for version in versions if dataset or CHAMPION in version.aliases]
    if as_json:
        print(json.dumps([_as_json(version) for version in shown], indent=2))
        return
    if not shown:
        print(
            f"no version of see-tune.{dataset or '*'} is registered yet; a study's final phase registers one: see-tune run FILE"
        )
    for line in _table(shown):
        print(line)


def promote(
    dataset: Dataset,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="A number from `see-tune best DATASET`.", min=1)],
    tracking: Tracking = "auto",
    home: HomeFolder = None,
) -> None:
    """Make a version the champion by hand. It need not be comparable with the one before."""
    from see_tune.tracking.registry import promote as make_champion

    with _registry(home, tracking) as client:
        chosen = make_champion(client, dataset, version)
    print(f"models:/{chosen.model}@champion is version {chosen.version} now, of the study {chosen.candidate.study}")


def _registry(home: Path | None, tracking: str) -> AbstractContextManager[MlflowClient]:
    from see_tune.addresses import LOCAL, find_tracking
    from see_tune.errors import StudyError
    from see_tune.home import find_home
    from see_tune.tracking.connection import reached

    at_home = find_home(home)
    if find_tracking(tracking) == LOCAL and not at_home.mlflow_db.is_file():
        raise StudyError(f"nothing was tracked in {at_home.root} yet, so no model is registered there. Another home: --home DIR")
    return reached(at_home, tracking)


def _as_json(version: RegisteredVersion) -> dict[str, Any]:
    from see_tune.tracking.registry import CHAMPION

    return {"uri": f"models:/{version.model}/{version.version}", "champion": CHAMPION in version.aliases, **asdict(version)}


def _table(versions: list[RegisteredVersion]) -> list[str]:
    """One line a version, numbers in percent."""
    rows = [_row(version) for version in versions]
    if not rows:
        return []
    rows.insert(0, ("model", "", "validation", "test R@1", "over seeds", "size", "study", "protocol"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(version: RegisteredVersion) -> tuple[str, ...]:
    from see_tune.tracking.registry import CHAMPION

    candidate, metric = version.candidate, "test/recall_at_1"
    return (
        f"{version.model}/{version.version}",
        CHAMPION if CHAMPION in version.aliases else "",
        f"{100 * candidate.validation:.1f}",
        *(f"{100 * values[metric]:.1f}" if metric in values else "" for values in (candidate.test, candidate.test_mean)),
        f"{candidate.backbone}/{candidate.embedding_dim}",
        candidate.study,
        candidate.protocol,
    )
