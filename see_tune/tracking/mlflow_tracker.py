"""A study -> a parent run, a trial or a final training -> a child run, in MLflow's experiment ``see-tune/<dataset>``.

`Tracker` is what the driver holds. Its methods only append to the spool (no network, no mlflow import, well under a
millisecond) and name runs by the study's own lineages; delivery.py tells MLflow, in the spool's thread.

What a reader of the MLflow UI sees is decided here: a run's status (FINISHED, KILLED for pruned, FAILED), its tags
(``see_tune.phase``, ``see_tune.state``), and that a column shows the last value of its metric, hence ``best/*`` once.

    tracker = Tracker(home, study="cars-deit128", dataset="cars196", uri="local")
    tracker.start_study(params=..., tags=..., started_at=time.time())
    tracker.start_run(lineage, name="t017 n12 l.31", params=..., tags={"phase": "search", "arm": "see"}, started_at=...)
    tracker.log_epoch(lineage, epoch_result)
    tracker.end_run(lineage, status="complete", metrics={"best/val_recall_at_1": 0.934}, ended_at=...)
    tracker.drain(timeout_s=30)
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from see_tune.errors import TrackingError
from see_tune.home import Home
from see_tune.results import EpochResult
from see_tune.tracking.connection import EXPERIMENT_PREFIX
from see_tune.tracking.delivery import STUDY, TAG_PREFIX, Delivery
from see_tune.tracking.registry import Candidate, Registration
from see_tune.tracking.spool import Refusal, Spool

RunStatus = Literal["complete", "pruned", "failed", "interrupted"]

_STATUS: Mapping[RunStatus, str] = {"complete": "FINISHED", "pruned": "KILLED", "failed": "FAILED", "interrupted": "KILLED"}
_FIRST_DELIVERY_S = 10.0


class Tracker:
    """The driver's side: everything is appended to the study's spool, nothing waits for MLflow.

    home, study: whose runs, and where the spool lies.
    dataset: what it is called; names the experiment.
    uri: ``local``, or ``http(s)://host:port`` of a server, which may be away.
    on_away: told why, in a thread of the tracker's, when MLflow begins to be away.

    Delivery starts with what an earlier process could not deliver, and not at once: it imports MLflow, which takes a core for
    seconds, and so do the trials that are starting. Times are Unix times in seconds.
    Values that are not finite are refused with a TrackingError before they reach the spool.
    """

    def __init__(
        self, home: Home, *, study: str, dataset: str, uri: str, on_away: Callable[[str], None] = lambda why: None
    ) -> None:
        self._study = study
        self._spool = Spool(home.study(study).spool_db, first_delivery_s=_FIRST_DELIVERY_S, on_away=on_away)
        self._delivery = Delivery(home, uri, experiment=f"{EXPERIMENT_PREFIX}{dataset}", study_id=self._spool.identity)
        self._spool.start(self._delivery)

    def start_study(self, *, params: Mapping[str, object], tags: Mapping[str, str], started_at: float) -> None:
        """Begin or resume the parent run. Params that it has already stay as they are: MLflow's are immutable."""
        self._start(STUDY, self._study, None, params, tags, started_at)

    def start_run(
        self, lineage: str, *, name: str, params: Mapping[str, object], tags: Mapping[str, str], started_at: float
    ) -> None:
        """Begin or resume the child run of one lineage, shown as `name` (``t017 n12 l.31``)."""
        self._start(lineage, name, STUDY, params, tags, started_at)

    def log_epoch(self, lineage: str, epoch: EpochResult) -> None:
        """One epoch's metrics, with the epoch as step and its own timestamp, so that logging it again changes nothing."""
        self._log(lineage, {**epoch.metrics, "time/epoch_s": epoch.duration_s}, epoch.timestamp, step=epoch.epoch)

    def end_run(
        self,
        lineage: str,
        *,
        status: RunStatus,
        ended_at: float,
        tags: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """End a child run. `metrics` are logged once (``best/val_recall_at_1``, ``best/epoch``), for completed trials alone."""
        self._log(lineage, metrics or {}, ended_at)
        self._end(lineage, status, tags or {}, ended_at)

    def log_study_metrics(self, metrics: Mapping[str, float]) -> None:
        """The answer, on the parent run (``answer/test_recall_at_1``, ``answer/gain``)."""
        self._log(STUDY, metrics, time.time())

    def set_description(self, text: str) -> None:
        """The Markdown that MLflow shows above the parent run."""
        self._spool.append("tags", {"lineage": STUDY, "tags": {"mlflow.note.content": text}})

    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """A file, or a directory's content, for the parent run; read when it is delivered, so it must stay where it is."""
        self._spool.append("artifact", {"lineage": STUDY, "path": str(path.resolve()), "folder": folder})

    def register(self, lineage: str, model_folder: Path, candidate: Candidate) -> None:
        """Register the model in `model_folder` (`write_model_folder`), trained by `lineage`, and settle who is champion."""
        body = {"lineage": lineage, "folder": str(model_folder.resolve()), "candidate": dataclasses.asdict(candidate)}
        self._spool.append("register", body)

    def end_study(self, *, status: RunStatus, ended_at: float) -> None:
        """End the parent run."""
        self._end(STUDY, status, {}, ended_at)

    def registration(self, lineage: str) -> Registration | None:
        """What became of `register`, or None while it is undelivered."""
        return self._delivery.registrations.get(lineage)

    def undelivered(self) -> int:
        """How many events MLflow has yet to be told."""
        return self._spool.undelivered()

    def refused(self) -> tuple[Refusal, ...]:
        """What MLflow refused, to be said at the end; tried once more at the next start."""
        return self._spool.refused()

    def away(self) -> str | None:
        """Why MLflow could not be reached just now, or None."""
        return self._spool.away()

    def drain(self, timeout_s: float, *, away_s: float = math.inf) -> int:
        """Wait for the delivery of everything, at most `timeout_s`, at most `away_s` on end for a server that is away; returns
        how many events are left for the next start."""
        return self._spool.drain(timeout_s, away_s=away_s)

    def close(self) -> None:
        """End the delivery thread after the call that is under way; what is left is in the spool."""
        self._spool.close()

    def _start(
        self,
        lineage: str,
        name: str,
        parent: str | None,
        params: Mapping[str, object],
        tags: Mapping[str, str],
        started_at: float,
    ) -> None:
        named = {"study": self._study, "study_id": self._spool.identity, "lineage": lineage, "state": "running", **tags}
        body = {
            "lineage": lineage,
            "name": name,
            "parent": parent,
            "params": {key: str(value) for key, value in params.items()},
            # MLflow's column "Source" tells the studies of an experiment apart, also where runs are sorted out of their nesting.
            "tags": {
                **_prefixed(named),
                "mlflow.runName": name,
                "mlflow.source.name": self._study,
                "mlflow.source.type": "LOCAL",
            },
            "time": _milliseconds(started_at),
        }
        self._spool.append("start", body)

    def _log(self, lineage: str, metrics: Mapping[str, float], timestamp: float, *, step: int = 0) -> None:
        _refuse_non_finite(lineage, metrics)
        if metrics:
            rows = [[key, float(value), _milliseconds(timestamp), step] for key, value in metrics.items()]
            self._spool.append("metrics", {"lineage": lineage, "rows": rows})

    def _end(self, lineage: str, status: RunStatus, tags: Mapping[str, str], ended_at: float) -> None:
        named = _prefixed({"state": status, **tags})
        self._spool.append("tags", {"lineage": lineage, "tags": named})
        self._spool.append("end", {"lineage": lineage, "status": _STATUS[status], "time": _milliseconds(ended_at)})


def _prefixed(tags: Mapping[str, str]) -> dict[str, str]:
    return {TAG_PREFIX + key: value for key, value in tags.items()}


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _refuse_non_finite(lineage: str, metrics: Mapping[str, float]) -> None:
    for key, value in metrics.items():
        if not math.isfinite(value):
            raise TrackingError(
                f"{key} of {lineage} is {value}: only finite numbers are tracked (MLflow would store 1.8e308 for an infinity); "
                f"a trial with such a value must end as failed"
            )
