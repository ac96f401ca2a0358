"""How a study stands at this moment, read without touching it: while it runs, from another terminal, or long after.

The storage is opened read-only and the lock is only looked at. Neither Ray nor torch nor MLflow is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from see_tune.holding import Holder, holder_of
from see_tune.home import Home, StudyFolder
from see_tune.results import StudyResult
from see_tune.search.generations import view_ledgers
from see_tune.search.ledger import Ledger
from see_tune.search.rows import FinishedRow, RunningRow
from see_tune.spec.load import trial_values
from see_tune.spec.models import StudySpec
from see_tune.studies import existing_study, frozen, stored_result

State = Literal["running", "done", "interrupted", "failed"]


@dataclass(frozen=True)
class RunningTrial:
    """A row that is out. value: the objective after `epoch`; None before the first. last_epoch: after which it ends."""

    lineage: str
    epoch: int
    value: float | None
    last_epoch: int


@dataclass(frozen=True)
class Found:
    """A row's best value on held-out training classes, with its searched values."""

    lineage: str
    value: float
    values: Mapping[str, Any]


@dataclass(frozen=True)
class StudyStatus:
    """One study, now.

    state: ``running`` while a process holds it; ``interrupted`` where the same command would go on; ``failed`` where that helps
        once the cause is mended.
    search_ended: what ended the search before its last trial (as in StudyResult); empty where nothing did, or it goes on.
    trials: the budget of the search; finished, complete, pruned, failed: of its trials; waiting: cut, and going on next.
    planned: finished rows beside the search (baseline, re-ranking, final runs).
    best, off: the best search trial, and SEE off; None until there is one.
    running: rows that are out.
    disk_bytes, checkpoint_bytes: what the study's folder takes, and the part of it that is checkpoints.
    """

    study: str
    dataset: str
    protocol: str
    objective: str
    state: State
    search_ended: str
    holder: Holder | None
    trials: int
    finished: int
    complete: int
    pruned: int
    failed: int
    waiting: int
    planned: int
    best: Found | None
    off: Found | None
    running: tuple[RunningTrial, ...]
    disk_bytes: int
    checkpoint_bytes: int
    folder: str


def read_status(home: Home, name: str) -> StudyStatus:
    """The study `name` of this home. Raises: StudyError where there is none."""
    folder = existing_study(home, name)
    spec = frozen(folder).spec
    holder, stored = holder_of(folder), stored_result(folder)
    ledgers = view_ledgers(folder, spec.study)
    search, final, off = ledgers if ledgers else (None, None, None)
    searched, planned, beside = _finished(search), _finished(final), _finished(off)
    statuses = [row.result.status for row in searched]
    return StudyStatus(
        study=name,
        dataset=spec.dataset.called,
        protocol=spec.protocol,
        objective=trial_values(spec).objective_metric,
        state=_state(stored, spec, holder),
        search_ended="" if holder else _search_ended(stored),
        holder=holder,
        trials=spec.budget.trials,
        finished=len(searched),
        complete=statuses.count("complete"),
        pruned=statuses.count("pruned"),
        failed=statuses.count("failed"),
        waiting=len(search.cut()) + len(search.running()) * (holder is None) if search else 0,
        planned=len(planned) + len(beside),
        best=_best(searched),
        off=_best(beside or [row for row in planned if row.plan["phase"] == "baseline" and not row.plan["values"]][-1:]),
        running=tuple(_running(row, spec) for ledger in (search, final, off) if ledger for row in ledger.running())
        if holder
        else (),
        disk_bytes=_size(folder, "**/*"),
        checkpoint_bytes=_size(folder, "trials/**/*"),
        folder=str(folder.root),
    )


def _state(stored: StudyResult | None, spec: StudySpec, holder: Holder | None) -> State:
    if holder is not None:
        return "running"
    if stored is None or stored.status != "done":
        return stored.status if stored else "interrupted"
    return "done" if stored.search_ended or stored.trials >= spec.budget.trials else "interrupted"


def _search_ended(stored: StudyResult | None) -> str:
    return stored.search_ended if stored and stored.search_ended != "trials" else ""


def _finished(ledger: Ledger | None) -> tuple[FinishedRow, ...]:
    return ledger.finished() if ledger else ()


def _best(rows: Sequence[FinishedRow]) -> Found | None:
    measured = [Found(row.lineage, row.value, row.values) for row in rows if row.value is not None]
    return max(measured, key=lambda found: found.value, default=None)


def _running(row: RunningRow, spec: StudySpec) -> RunningTrial:
    last = row.plan.get("epoch", spec.train.epochs)  # a final run ends at its configuration's best epoch
    return RunningTrial(row.lineage, max(row.curve, default=0), row.curve[max(row.curve)] if row.curve else None, last)


def _size(folder: StudyFolder, pattern: str) -> int:
    """Bytes of the files that `pattern` matches; one that goes away meanwhile counts for nothing."""
    total = 0
    for file in folder.root.glob(pattern):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue
    return total
