"""Rows of a ledger, as everybody else knows them: what they are called, what they train, how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from see_tune.results import TrialResult
from see_tune.spec.space import Value

Side = Literal["see", "off"]
OFF = "o"  # begins the lineage of a trial that is searched with SEE off


@dataclass(frozen=True)
class Row:
    """One piece of work, handed out.

    number: the Optuna trial's number.
    lineage: what it is called, and its checkpoint folder.
    values: the searched values of a searched row.
    plan: what a planned row was enqueued with.
    """

    number: int
    lineage: str
    values: Mapping[str, Value]
    plan: Mapping[str, Any]


@dataclass(frozen=True)
class FinishedRow(Row):
    """A row with its end.

    value: the objective at its best epoch; None unless it is complete.
    duration_s: seconds of training over all its resumes.
    """

    result: TrialResult
    value: float | None
    duration_s: float
    ended_at: datetime | None = None


@dataclass(frozen=True)
class CutRow:
    """A row that was begun and waits to go on.

    judged_epochs: the pruner has spoken on so many of its epochs.
    duration_s: seconds of training so far.
    """

    lineage: str
    values: Mapping[str, Value]
    judged_epochs: int
    duration_s: float


@dataclass(frozen=True)
class RunningRow:
    """A row that is out. curve: epoch -> objective so far. plan: what a planned row was enqueued with."""

    lineage: str
    curve: Mapping[int, float]
    plan: Mapping[str, Any]


def row_title(row: Row) -> str:
    """What people see a row as: ``t017``, ``baseline``, ``re-rank t017 f2``, ``final off s1``.

    ``final off t003 s1`` is the winner of a search that chose SEE off.
    """
    match row.plan.get("phase"):
        case "rerank":
            return f"re-rank {row.plan['of']} f{row.plan['fold']}"
        case "final":
            chose_off = row.plan["side"] == "see" and not row.plan.get("see_enabled", True)
            side = f"off {row.plan['of']}" if chose_off else row.plan["side"]
            return f"final {side} s{row.plan['seed']}"
        case _:
            return row.lineage
