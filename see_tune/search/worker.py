"""What runs inside a Ray worker: one trial, reporting its epochs. Kept apart so that a worker imports no Optuna."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol

import ray
from ray import tune
from ray.tune import PlacementGroupFactory

from see_tune.results import EpochResult, TrialResult
from see_tune.spec.models import TrialSpec


class RunTrial(Protocol):
    """What the runner is handed: the real trainer, or a test's own."""

    def __call__(self, spec: TrialSpec, *, folder: Path, on_epoch: Callable[[EpochResult, Path | None], None]) -> TrialResult: ...


_PARKED_S = 2.0


def make_trainable(run_trial: RunTrial) -> Callable[[dict[str, Any]], None]:
    """A Tune function trainable over `run_trial`; its config is what `Desk.take` hands out.

    Tune places a trial where the resources are, and knows no device that it must not take. So a worker that finds itself on a
    quarantined one, or on a node that joined so lately that nobody has looked at it, gives its row back and stays there until
    the desk ends it, and the place stays taken.
    """

    def work(config: dict[str, Any]) -> None:
        place = {"where": _device_name(), "node": ray.get_runtime_context().get_node_id()}
        is_new = config["nodes"] is not None and place["node"] not in config["nodes"]
        if is_new or is_quarantined(place["where"], config["quarantined"]):
            tune.report({"epoch": 0, "given_back": "new" if is_new else "quarantined", **place})
            while True:
                time.sleep(_PARKED_S)
                tune.report({"epoch": 0, **place})  # the desk stops it here
        tune.report({"epoch": 0, **place})  # known before the first epoch, which a node may not live to see

        def on_epoch(result: EpochResult, checkpoint: Path | None) -> None:
            tune.report({"epoch": result.epoch, "epoch_result": result.to_json(), **place})

        spec = TrialSpec.model_validate_json(config["spec"])
        outcome = run_trial(spec, folder=Path(config["folder"]), on_epoch=on_epoch)
        tune.report({"epoch": len(outcome.epochs), "outcome": outcome.to_json(), **place})

    return work


def ask_for(cpus: int, gpus: float) -> Callable[[dict[str, Any]], PlacementGroupFactory]:
    """What a trial, by its config, asks Ray for: so much of any node but those that are unfit."""

    def request(config: dict[str, Any]) -> PlacementGroupFactory:
        bundle = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
        if not config["unfit"]:
            return PlacementGroupFactory([bundle])
        elsewhere = {"ray.io/node-id": f"!in({','.join(config['unfit'])})"}
        return PlacementGroupFactory([bundle], bundle_label_selector=[elsewhere])

    return request


def is_quarantined(where: str, names: Collection[str]) -> bool:
    """Whether a device (``host:0``) or its node (``host``) is among `names`."""
    return where in names or node_of(where) in names


def node_of(where: str) -> str:
    """``host`` of ``host:0``."""
    return where.rpartition(":")[0]


def _device_name() -> str:
    """``host:0`` for a trial on GPU 0, ``host:cpu`` without one."""
    gpus = ray.get_gpu_ids()
    return f"{socket.gethostname()}:{gpus[0] if gpus else 'cpu'}"
