"""`see-tune train FILE`: one trial with the file's own values, without Ray and without MLflow; for debugging."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from see_tune.cli.options import AsJson, HomeFolder, Overrides, StudyFile, path_option
from see_tune.wording import counted

if TYPE_CHECKING:
    from see_tune.results import EpochResult


def train(
    file: StudyFile,
    folder: Annotated[Path | None, path_option("--folder", "Keep checkpoints here, and continue from them.")] = None,
    home: HomeFolder = None,
    set_: Overrides = None,
    as_json: AsJson = False,
) -> int:
    """Train one trial with the file's own values. No search, no Ray, no MLflow."""
    from see_tune.checks import preflight, unwritable
    from see_tune.home import find_home
    from see_tune.looks import Look, count_look
    from see_tune.spec.load import load_values, trial_values

    spec, at_home = load_values(file, overrides=set_ or []), find_home(home)
    trial = trial_values(spec)
    if folder is not None and (unfit := unwritable(folder, "the folder", "--folder DIR")) is not None:
        raise unfit
    facts = preflight(spec, trial, at_home)
    from see_tune.training import check_folder, train_trial

    if folder is not None:
        check_folder(folder, trial)

    def take_epoch(result: EpochResult, checkpoint: Path | None) -> None:
        if trial.objective_metric in result.metrics and trial.split.kind == "paper":
            count_look(at_home, Look(facts.fingerprint, "", f"train {spec.study}", result.epoch, result.timestamp))
        if not as_json:
            print(_line(result, trial.epochs_in_all, trial.objective_metric), flush=True)

    if not as_json:
        print(f"{counted(facts.train_images, 'image')} of {counted(facts.train_classes, 'class')}; values: the file's own")
    outcome = train_trial(trial, home=at_home, folder=folder, on_epoch=take_epoch, threads=len(os.sched_getaffinity(0)))
    if as_json:
        print(outcome.to_json())
    if outcome.status == "failed":
        print(f"see-tune: the trial failed: {outcome.cause}\n{outcome.traceback or ''}".rstrip(), file=sys.stderr)
        return 1
    if not as_json:
        print(f"best: {trial.objective_metric} {100 * (outcome.best_value or 0):.1f} after epoch {outcome.best_epoch}")
    return 0


def _line(result: EpochResult, last_epoch: int, metric: str) -> str:
    value = f"  {metric} {100 * result.metrics[metric]:5.1f}" if metric in result.metrics else ""
    speed = result.metrics.get("train/images_per_s", 0.0)
    loss = result.metrics["train/loss"]
    return f"epoch {result.epoch:3d}/{last_epoch}  loss {loss:8.4f}{value}  {speed:6.0f} img/s  {result.duration_s:.1f} s"
