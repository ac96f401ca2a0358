"""Whether a trial's model can be built, found out by building it; what was built before, with the same versions and the same
weights, is not built again, and torch is not imported for it.

The memory lies in the home's cache: a file for each model, which holds the hash of the weights file that it was built from.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from see_tune.errors import SpecError, UserError
from see_tune.imports import quick_imports
from see_tune.spec.models import TrialSpec

_VERSIONS = ("see-tune", "torch", "torchvision", "timm")
_HUB_PLACES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME")


def wrong_model(trial: TrialSpec, cache: Path, *, fetch: bool) -> Iterator[UserError]:
    """An unknown backbone, weights that are absent or do not fit, images too small for it, a micro-batch that is not exact.

    cache: the home's. fetch: get pretrained weights from the hub, once, so that no trial has to, and remember what was built;
    False only asks whether there are any.
    """
    memory = cache / f"model-{_key(trial)}.json"
    if _is_known(trial, memory):
        return
    try:
        weights = _build(trial, fetch=fetch)
    except UserError as error:
        yield error
        return
    if fetch and weights is not None:
        with suppress(OSError):  # then it is built again, the next time
            cache.mkdir(parents=True, exist_ok=True)
            memory.write_text(json.dumps({str(file): _digest(file) for file in weights}), encoding="utf-8")


def _build(trial: TrialSpec, *, fetch: bool) -> tuple[Path, ...] | None:
    """Build the model as a trial would; returns the files that its weights came from, None where those are not known.

    Raises: UserError.
    """
    with quick_imports():
        from see_tune.models import find_pretrained, pretrained_file
        from see_tune.training.parts import exact_micro_batch, make_model, make_preprocessing

    backbone, weights = trial.model.backbone, trial.model.weights
    preprocessing = make_preprocessing(trial)
    if weights == "pretrained" and not fetch:
        find_pretrained(backbone)
        weights = "none"
    try:
        exact_micro_batch(trial, make_model(trial, preprocessing, weights=weights))
    except RuntimeError as error:  # timm's and torch's own, of sizes that do not go together
        raise SpecError(
            f"model.backbone {backbone} cannot be built for images of {preprocessing.image_size} px ({error}); "
            "set data.image_size: auto, or a larger one"
        ) from error
    if weights == "pretrained":
        file = pretrained_file(backbone)
        return None if file is None else (file,)
    return () if weights == "none" else (Path(weights).resolve(),)


def _key(trial: TrialSpec) -> str:
    """Of all that the building depends on but the weights' bytes."""
    model, train = trial.model, trial.train
    weights = model.weights if model.weights in ("pretrained", "none") else str(Path(model.weights).resolve())
    parts = [
        model.model_copy(update={"weights": weights}).model_dump_json(),
        trial.data.model_dump_json(),
        f"{train.batch_size} {train.micro_batch}",
        *(version(name) for name in _VERSIONS),
        *(os.environ.get(place, "") for place in _HUB_PLACES if weights == "pretrained"),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _is_known(trial: TrialSpec, memory: Path) -> bool:
    """Whether that model was built once, from weights of the same bytes."""
    weights = trial.model.weights
    try:
        built_from = json.loads(memory.read_text(encoding="utf-8"))
        named = {"none": [], "pretrained": list(built_from)[:1]}.get(weights, [str(Path(weights).resolve())])
        return list(built_from) == named and all(_digest(Path(file)) == known for file, known in built_from.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
