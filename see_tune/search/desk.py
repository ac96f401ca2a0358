"""The desk: hands the rows of one phase after another out to the engine, and takes back what became of them.

It knows no Ray (searcher.py brings the two together), and nothing here trains, tracks or draws: that is what `DeskListener` is
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from see_tune.errors import StorageAwayError
from see_tune.results import EpochResult, TrialResult, TrialStatus, best_epoch
from see_tune.search.rows import Row
from see_tune.spec.models import TrialSpec

if TYPE_CHECKING:
    from see_tune.search.ledger import Ledger

_NODES_LOST = 5  # a row that took so many nodes with it does not get another


@dataclass(frozen=True)
class Stream:
    """One source of rows inside a phase.

    ledger: where its rows lie.
    make_spec: a row -> what is trained.
    may_start: False when its budget is used up.
    """

    ledger: Ledger
    make_spec: Callable[[Row], TrialSpec]
    may_start: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Phase:
    """Streams whose rows run side by side; the next phase is planned when the last row of this one has ended."""

    name: str
    streams: Sequence[Stream]


@dataclass
class Work:
    """A row that is out: what it trains and what came back so far."""

    phase: str
    row: Row
    spec: TrialSpec
    stream: Stream
    epochs: dict[int, EpochResult] = field(default_factory=dict)
    where: str = ""
    node: str = ""
    outcome: TrialResult | None = None
    pruned: bool = False

    @property
    def metric(self) -> str:
        """The objective's name among an epoch's metrics."""
        return self.spec.objective_metric

    def ended(self, status: TrialStatus, cause: str | None = None) -> TrialResult:
        """The result of a row whose worker did not give one itself."""
        epoch, value = best_epoch(self.history, self.metric) or (None, None)
        return TrialResult(status, self.history, epoch, value, cause=cause, device=self.where)

    def mean_curve(self, result: TrialResult) -> dict[int, float] | None:
        """Epoch -> mean over the members of a complete row; None for a row of one training, whose curve was reported."""
        if not self.spec.members or result.status != "complete":
            return None
        return {epoch.epoch: epoch.metrics[self.metric] for epoch in result.epochs if self.metric in epoch.metrics}

    @property
    def history(self) -> tuple[EpochResult, ...]:
        return tuple(self.epochs[epoch] for epoch in sorted(self.epochs))


class DeskListener:
    """What happens at the desk; the study overrides what it wants to know. Called in the driver, in order."""

    def on_phase(self, name: str) -> None: ...

    def on_start(self, work: Work) -> None: ...

    def on_epoch(self, work: Work, result: EpochResult) -> None: ...

    def on_end(self, work: Work, result: TrialResult) -> None: ...


class Desk:
    """Hands out the rows of one phase after another, and closes each with how it ended.

    phases: drawn lazily, so that a phase can be planned from the results of those before it.
    slots: at most so many rows are out at once; may change while the desk is open.
    retries: a row whose worker is lost is handed out again so many times in a session, losses of its whole node apart.
    folder_of: lineage -> its checkpoint folder.
    has_left: whether the node of this id is gone, and its workers' loss no fault of what they ran.

    quarantined: devices and nodes that get no more rows, each with why (see guard.py). nodes: ids of those that were looked at
    and may have rows; None where that is every one. unfit: those that may not, by id, each with why. parked: Tune's trials that
    occupy a device so that it stays empty, each with the id of its node where it waits for that to be looked at; each takes a
    slot.
    """

    def __init__(
        self,
        phases: Iterator[Phase],
        *,
        slots: int,
        retries: int,
        listeners: Sequence[DeskListener],
        folder_of: Callable[[str], Path],
        has_left: Callable[[str], bool] = lambda node: False,
    ) -> None:
        self._phases = phases
        self._phase: Phase | None = None
        self.slots = slots
        self._retries = retries
        self._losses: dict[str, list[str]] = {}
        self._has_left = has_left
        self._listeners = listeners
        self._folder_of = folder_of
        self.out: dict[str, Work] = {}
        self.parked: dict[str, str | None] = {}
        self.quarantined: dict[str, str] = {}
        self.nodes: frozenset[str] | None = None
        self.unfit: Mapping[str, str] = {}
        self.stopping = False
        self.finished = False
        self.error: BaseException | None = None

    def take(self, ray_id: str) -> dict[str, Any] | None:
        """The next row as Tune's config; None while there is nothing to hand out (see `finished`)."""
        with self._kept():
            return self._hand_out(ray_id)
        return None

    def _hand_out(self, ray_id: str) -> dict[str, Any] | None:
        full = len(self.out) + len(self.parked) >= self.slots
        work = None if self.stopping or full else self._next_work()
        if work is None:
            return None
        self.out[ray_id] = work
        for listener in self._listeners:
            listener.on_start(work)
        folder = self._folder_of(work.row.lineage)
        return {
            "lineage": work.row.lineage,
            "folder": str(folder),
            "spec": work.spec.model_dump_json(by_alias=True),
            "quarantined": list(self.quarantined),
            "nodes": None if self.nodes is None else sorted(self.nodes),
            "unfit": sorted(self.unfit),
        }

    def _next_work(self) -> Work | None:
        while not self.finished:
            if self._phase is not None and (work := self._from(self._phase)):
                return work
            if self.out:
                return None
            self._begin(next(self._phases, None))
        return None

    def _from(self, phase: Phase) -> Work | None:
        for stream in phase.streams:
            if stream.may_start() and (row := stream.ledger.ask()):
                return Work(phase.name, row, stream.make_spec(row), stream)
        return None

    def _begin(self, phase: Phase | None) -> None:
        self._phase = phase
        self.finished = phase is None
        if phase is not None:
            for listener in self._listeners:
                listener.on_phase(phase.name)

    def receive(self, ray_id: str, report: Mapping[str, Any]) -> bool:
        """Take what a worker reported; True when its row is to be stopped here.

        The order for each epoch: the listener (which spools it), the ledger, the pruner's verdict.
        """
        if ray_id in self.parked:
            return self.finished or self.stopping or self._was_looked_at(self.parked[ray_id])
        if report.get("given_back"):
            self.parked[ray_id] = str(report["node"]) if report["given_back"] == "new" else None
            self._close(ray_id, lambda work: work.ended("interrupted"))
            return self.stopping
        work = self.out.get(ray_id)
        if work is not None:
            with self._kept():
                return self._take_in(work, report)
        return True

    def _was_looked_at(self, node: str | None) -> bool:
        return node in (self.nodes or ()) or node in self.unfit

    def _take_in(self, work: Work, report: Mapping[str, Any]) -> bool:
        work.where = str(report.get("where", work.where))
        work.node = str(report.get("node", work.node))
        if "outcome" in report:
            work.outcome = TrialResult.from_json(report["outcome"])
        if "epoch_result" not in report:
            return self.stopping
        result = EpochResult.from_json(report["epoch_result"])
        if result.epoch not in work.epochs:  # Tune repeats the last result when a function returns
            work.epochs[result.epoch] = result
            work.stream.ledger.count_epoch(work.row.lineage, result.epoch, result.duration_s)
            for listener in self._listeners:
                listener.on_epoch(work, result)
            if (value := result.metrics.get(work.metric)) is not None:
                judged = work.stream.ledger.report(work.row.lineage, result.epoch, value)
                work.pruned = judged and result.epoch < work.spec.epochs_in_all  # one that is trained to its end is complete
        return work.pruned or self.stopping

    def close(self, ray_id: str, *, lost: bool) -> None:
        """A row's worker is done or gone: tell the ledger how it ended."""
        self.parked.pop(ray_id, None)
        self._close(ray_id, lambda work: self._end_of(work, lost=lost))

    def _close(self, ray_id: str, end_of: Callable[[Work], TrialResult]) -> None:
        work = self.out.pop(ray_id, None)
        if work is None or isinstance(self.error, StorageAwayError):  # then its row is put back at the next start
            return
        with self._kept():
            result = end_of(work)
            work.stream.ledger.tell(work.row.lineage, result, curve=work.mean_curve(result))
            for listener in self._listeners:
                listener.on_end(work, result)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep what goes wrong, and stop: Tune would wrap it and print its own traceback; the runner raises it."""
        try:
            yield
        except Exception as error:
            self.give_up(error)

    def _end_of(self, work: Work, *, lost: bool) -> TrialResult:
        if work.outcome is not None:
            return work.outcome
        if work.pruned:
            return work.ended("pruned")
        if not lost or self.stopping:
            return work.ended("interrupted")
        losses = self._losses.setdefault(work.row.lineage, [])
        losses.append(work.node)
        if len(losses) > self._retries and self._is_to_blame(losses):
            return work.ended("failed", cause="its worker was lost more often than failure.retries allows")
        return work.ended("interrupted", cause="its worker was lost; it goes on from its checkpoint")

    def _is_to_blame(self, losses: Sequence[str]) -> bool:
        """Whether a row has lost more workers than it may; nodes that left do not count, unless it is about the row after all."""
        own = [node for node in losses if not (node and self._has_left(node))]
        return len(own) > self._retries or len(losses) > self._retries + _NODES_LOST

    def give_up(self, error: BaseException) -> None:
        """Stop for what somebody else has met; the runner raises it. From any thread."""
        self.error = self.error or error
        self.stopping = self.finished = True

    def close_all(self) -> None:
        """Put back whatever is still out, so that no row stays RUNNING."""
        for ray_id in list(self.out):
            self.close(ray_id, lost=False)
