"""A trial as the engine runs it: the function that the driver hands to Ray, and that imports the trainer where it runs.

The driver schedules trials and trains none, so it need not wait for torch before it hands out the first.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from pathlib import Path

from see_tune.home import Home
from see_tune.imports import quick_imports
from see_tune.results import EpochResult, TrialResult
from see_tune.spec.models import TrialSpec


def run_trial(
    spec: TrialSpec, *, home: Home, threads: int, folder: Path, on_epoch: Callable[[EpochResult, Path | None], None]
) -> TrialResult:
    """`see_tune.training.train_trial`, in a process that runs trials and nothing else."""
    _import_trainer()
    from see_tune.training import train_trial

    return train_trial(spec, home=home, folder=folder, on_epoch=on_epoch, threads=threads)


@functools.cache
def _import_trainer() -> None:
    """Once a process: what is imported is here to stay, and a collection between two epochs need not go through it. Frozen again
    before the next trial, the garbage of the one before would stay as well."""
    with quick_imports():
        import see_tune.training  # noqa: F401
    gc.freeze()
