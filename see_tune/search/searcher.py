"""Between the desk and Ray Tune: Tune's two ways to reach it.

    Ray Tune ── LedgerSearcher.suggest ──────────> Desk.take ──> Ledger.ask
             ── LedgerStopper.__call__ (an epoch) ─> Desk.receive ──> Ledger.report, the pruner's verdict
             ── LedgerSearcher.on_trial_complete ─> Desk.close ──> Ledger.tell

Tune calls the stopper in the driver before its own searcher and scheduler see a result, so Optuna's pruner decides and the
storage, not Ray's memory, holds the rungs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune import Stopper
from ray.tune.search import Searcher

from see_tune.search.desk import Desk


class LedgerSearcher(Searcher):  # type: ignore[misc]
    """Tune's Searcher over a Desk."""

    def __init__(self, desk: Desk, count_slots: Callable[[], int] | None = None) -> None:
        super().__init__(metric="epoch", mode="max")
        self._desk = desk
        self._count_slots = count_slots

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._count_slots:
            self._desk.slots = self._count_slots()
        config = self._desk.take(trial_id)
        finished: str = Searcher.FINISHED
        return finished if config is None and (self._desk.finished or self._desk.stopping) else config

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._desk.close(trial_id, lost=error)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the record."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: a study continues from the ledger."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its own configuration; the desk stays in the driver


class LedgerStopper(Stopper):  # type: ignore[misc]
    """Tune's Stopper over a Desk: the only place where results come in."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return self._desk.receive(trial_id, result)

    def stop_all(self) -> bool:
        return self._desk.stopping

    def __getstate__(self) -> dict[str, Any]:
        return {}
