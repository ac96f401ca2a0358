"""The board: what a study is doing right now, for whoever watches it.

It listens at the desk and keeps counts, the best value beside the SEE-off one, and the time left, all as a frozen
`Snapshot` that another thread may draw.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from see_tune.home import StudyFolder
from see_tune.results import EpochResult, TrialResult
from see_tune.search.desk import DeskListener, Work
from see_tune.search.rows import OFF, CutRow, FinishedRow, Row, row_title
from see_tune.spec.models import StudySpec


@dataclass(frozen=True)
class RunningTrial:
    """One trial that is out."""

    title: str
    where: str
    epoch: int
    last_epoch: int
    value: float | None
    images_per_s: float | None
    wait_share: float | None


@dataclass(frozen=True)
class Best:
    """A trial's value beside its own name and searched values."""

    lineage: str
    value: float
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """The study at one moment.

    finished, total: search trials; `plan` names what comes after the search.
    spent_s, left_s: wall-clock; `left_s` includes the final phase and is None until one epoch has been measured.
    device_s: summed seconds of training, of this and earlier sessions.
    """

    phase: str
    finished: int
    total: int
    pruned: int
    failed: int
    plan: str
    spent_s: float
    left_s: float | None
    device_s: float
    best: Best | None
    off: Best | None
    running: tuple[RunningTrial, ...]


@dataclass
class Plan:
    """How many epochs of training are planned per phase, for the time left; the study sets it and corrects it.

    members: trainings whose mean a trial is; a complete one has trained its epochs so many times.
    """

    trials: int
    epochs_per_trial: int
    final_epochs: int
    text: str
    members: int = 1


@dataclass
class Board(DeskListener):
    """Keeps the counts; `snapshot` may be called from any thread."""

    plan: Plan
    slots: int
    finished: int = 0
    pruned: int = 0
    failed: int = 0
    device_s: float = 0.0
    best: Best | None = None
    off: Best | None = None
    _cut_s: dict[str, float] = field(default_factory=dict)
    _phase: str = "starting"
    _out: dict[str, Work] = field(default_factory=dict)
    _started_at: float = field(default_factory=time.monotonic)
    _epochs_done: int = 0
    _epoch_seconds: float = 0.0
    _final_epochs_done: int = 0
    _search_epochs: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_phase(self, name: str) -> None:
        with self._lock:
            self._phase = name

    def on_start(self, work: Work) -> None:
        with self._lock:
            self._out[work.row.lineage] = work

    def on_epoch(self, work: Work, result: EpochResult) -> None:
        with self._lock:
            self._epochs_done += 1
            self._epoch_seconds += result.duration_s
            if work.row.plan:
                self._final_epochs_done += 1

    def on_end(self, work: Work, result: TrialResult) -> None:
        with self._lock:
            self._out.pop(work.row.lineage, None)
            if result.status == "interrupted":
                self._cut_s[work.row.lineage] = _trained_s(work)
                return
            self._cut_s.pop(work.row.lineage, None)
            self.device_s += sum(epoch.duration_s for epoch in result.epochs)
            self._count(work.row, result)

    def recall(self, row: FinishedRow) -> None:
        """Count a row that an earlier session finished."""
        self.device_s += row.duration_s
        if row.plan and row.result.epochs:
            self._final_epochs_done += row.result.epochs[-1].epoch
        self._count(row, row.result)

    def recall_cut(self, row: CutRow) -> None:
        """Count the time of a row that an earlier session began, and that goes on."""
        self._cut_s[row.lineage] = row.duration_s

    def _count(self, row: Row, result: TrialResult) -> None:
        value = result.best_value
        if row.plan:
            if row.plan["phase"] == "baseline" and result.status == "complete" and value is not None:
                searched = row.lineage.startswith(OFF)
                if self.off is None or not searched or value > self.off.value:
                    self.off = Best(row.lineage, value, row.values)
            return
        self.finished += 1
        self.pruned += result.status == "pruned"
        self.failed += result.status == "failed"
        if result.epochs:
            self._search_epochs.append(result.epochs[-1].epoch * (self.plan.members if result.status == "complete" else 1))
        if result.status == "complete" and value is not None:
            found = Best(row.lineage, value, row.values)
            self.best = min(found, self.best or found, key=lambda best: (-best.value, best.lineage))

    def snapshot(self) -> Snapshot:
        with self._lock:
            return Snapshot(
                self._phase,
                self.finished,
                self.plan.trials,
                self.pruned,
                self.failed,
                self.plan.text,
                time.monotonic() - self._started_at,
                self._seconds_left(),
                self.device_s + self._unfinished_s(),
                self.best,
                self.off,
                tuple(_running(work) for work in self._out.values()),
            )

    def _unfinished_s(self) -> float:
        """Of rows that are out or were cut; one that goes on has told of no epoch yet, or of all its own."""
        out = {lineage: _trained_s(work) for lineage, work in self._out.items()}
        return sum(max(out.get(lineage, 0.0), self._cut_s.get(lineage, 0.0)) for lineage in {*out, *self._cut_s})

    def _seconds_left(self) -> float | None:
        """Epochs still to train, times the mean epoch, over the slots: search trials end as early as those before them did."""
        if not self._epochs_done:
            return None
        seen = self._search_epochs
        per_trial = sum(seen) / len(seen) if seen else self.plan.epochs_per_trial
        under_way = sum(len(work.epochs) for work in self._out.values() if not work.row.plan)
        search = max(0.0, (self.plan.trials - self.finished) * per_trial - under_way)
        final = max(0, self.plan.final_epochs - self._final_epochs_done)
        return (search + final) * self._epoch_seconds / self._epochs_done / self.slots


class Watcher(DeskListener):
    """Someone who looks on: the terminal, a test. Every method may be left as it is."""

    def decoding(self, done: int, total: int) -> None:
        """Images are decoded once before the first trial, so that a broken one is found now."""

    def begin(self, spec: StudySpec, board: Board, folder: StudyFolder) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


def _trained_s(work: Work) -> float:
    return sum(epoch.duration_s for epoch in work.history)


def _running(work: Work) -> RunningTrial:
    last = work.history[-1] if work.epochs else None
    metrics = last.metrics if last else {}
    return RunningTrial(
        row_title(work.row),
        work.where,
        last.epoch if last else 0,
        work.spec.epochs_in_all,
        metrics.get(work.metric),
        metrics.get("train/images_per_s"),
        metrics.get("train/wait_share"),
    )
