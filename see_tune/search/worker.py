"""What runs inside a Ray worker: one trial, reporting its epochs. Kept apart so that a worker imports no Optuna."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import ray
from ray import tune

from see_tune.results import EpochResult, TrialResult
from see_tune.spec.models import TrialSpec


class RunTrial(Protocol):
    """What the runner is handed: the real trainer, or a test's own."""

    def __call__(self, spec: TrialSpec, *, folder: Path, on_epoch: Callable[[EpochResult, Path | None], None]) -> TrialResult: ...


def make_trainable(run_trial: RunTrial) -> Callable[[dict[str, Any]], None]:
    """A Tune function trainable over `run_trial`; its config is what `Desk.take` hands out."""

    def work(config: dict[str, Any]) -> None:
        place = {"where": _device_name(), "node": ray.get_runtime_context().get_node_id()}
        tune.report({"epoch": 0, **place})  # known before the first epoch, which a node may not live to see

        def on_epoch(result: EpochResult, checkpoint: Path | None) -> None:
            tune.report({"epoch": result.epoch, "epoch_result": result.to_json(), **place})

        spec = TrialSpec.model_validate_json(config["spec"])
        outcome = run_trial(spec, folder=Path(config["folder"]), on_epoch=on_epoch)
        tune.report({"epoch": len(outcome.epochs), "outcome": outcome.to_json(), **place})

    return work


def _device_name() -> str:
    """``host:0`` for a trial on GPU 0, ``host:cpu`` without one."""
    gpus = ray.get_gpu_ids()
    return f"{socket.gethostname()}:{gpus[0] if gpus else 'cpu'}"
