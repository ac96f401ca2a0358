"""A trial of several trainings: one for each of its (fold, seed) members, in turn, and their mean as its value.

    <folder>/fold0-seed0/    the first member's checkpoints, and result.json once it is complete
    <folder>/fold1-seed0/    ...

The epochs that are handed out are numbered through. The first member's are those of any trial, and the pruner judges by them
alone; the later ones carry no validation metrics, because a number of one fold is not comparable with one of another. What is
complete is kept as its result, its checkpoints are removed, and a trial that was cut goes on inside the member it was cut in.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from see_tune.errors import CheckpointError
from see_tune.home import Home
from see_tune.results import EpochResult, TrialResult, best_epoch
from see_tune.spec.models import MemberSpec, TrialSpec
from see_tune.training import state
from see_tune.training.checkpoint import write_whole
from see_tune.training.trainer import OnEpoch, ignore, train

_MEASURED = ("val/", "test/")
_log = logging.getLogger(__name__)


def train_trial(
    spec: TrialSpec,
    *,
    home: Home,
    folder: Path | None = None,
    on_epoch: OnEpoch = ignore,
    device: str = "auto",
    threads: int | None = None,
) -> TrialResult:
    """`train` for a trial of one training; for one of several, each in turn and the mean of their curves.

    Args: as `train`. on_epoch gets the later members' epochs too, numbered on from the first one's last.

    Returns:
        "complete" with the mean of each epoch's metrics over the members (`duration_s`: their sum), or "failed" with the first
        member that did.

    Raises: as `train`.
    """
    if not spec.members:
        return train(spec, home=home, folder=folder, on_epoch=on_epoch, device=device, threads=threads)
    results: list[TrialResult] = []
    told: list[EpochResult] = []
    for member in spec.members:
        before = len(results) * spec.last_epoch

        def tell(result: EpochResult, checkpoint: Path | None, before: int = before) -> None:
            told.append(_numbered_on(result, before) if before else result)
            on_epoch(told[-1], checkpoint)

        own = folder / member.name if folder else None
        result = _stored(own)
        if result is None:
            result = train(_alone(spec, member), home=home, folder=own, on_epoch=tell, device=device, threads=threads)
            _store(own, result)
        else:
            for epoch in result.epochs:
                tell(epoch, None)
        if result.status != "complete":
            return replace(
                result, epochs=tuple(told), best_epoch=None, best_value=None, cause=f"in {member.name}: {result.cause}"
            )
        results.append(result)
    return _mean(spec.members, results, spec.objective_metric)


def check_folder(folder: Path, spec: TrialSpec) -> None:
    """Raises: SpecError where `train_trial` could not go on from what `folder` holds."""
    for place, alone in {folder: spec, **{folder / member.name: _alone(spec, member) for member in spec.members}}.items():
        state.check_folder(place, alone)


def _alone(spec: TrialSpec, member: MemberSpec) -> TrialSpec:
    return spec.model_copy(update={"members": (), "split": member.split, "seed": member.seed})


def _numbered_on(result: EpochResult, before: int) -> EpochResult:
    metrics = {name: value for name, value in result.metrics.items() if not name.startswith(_MEASURED)}
    return replace(result, epoch=before + result.epoch, metrics=metrics)


def _mean(members: Sequence[MemberSpec], results: Sequence[TrialResult], metric: str) -> TrialResult:
    epochs = tuple(_mean_epoch(same) for same in zip(*(result.epochs for result in results), strict=True))
    epoch, value = best_epoch(epochs, metric) or (None, None)
    facts = {**results[0].facts, "members": ", ".join(member.name for member in members)}
    return TrialResult("complete", epochs, epoch, value, device=results[0].device, facts=facts)


def _mean_epoch(same: Sequence[EpochResult]) -> EpochResult:
    """One epoch of all members."""
    shared = [name for name in same[0].metrics if all(name in other.metrics for other in same)]
    return EpochResult(
        same[0].epoch,
        {name: fmean(result.metrics[name] for result in same) for name in shared},
        timestamp=max(result.timestamp for result in same),
        duration_s=sum(result.duration_s for result in same),
    )


def _stored(folder: Path | None) -> TrialResult | None:
    file = _result_file(folder) if folder else None
    return TrialResult.from_json(file.read_text()) if file and file.is_file() else None


def _store(folder: Path | None, result: TrialResult) -> None:
    """Keep a complete member's result in place of its checkpoints; where the disk is full, they stay and are replayed."""
    if folder is None or result.status != "complete":
        return
    try:
        write_whole(_result_file(folder), result.to_json().encode())
    except CheckpointError as error:
        _log.error("%s", error)
        return
    for checkpoint in folder.glob("[0-9]*-*.pt"):
        checkpoint.unlink(missing_ok=True)


def _result_file(folder: Path) -> Path:
    return folder / "result.json"
