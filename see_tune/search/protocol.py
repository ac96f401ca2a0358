"""The honest protocol: which rows run after which, and how the winner is chosen.

    search    the searched rows, and beside them the SEE-off baseline: never pruned, outside the budget; or, where values
              outside `see` are searched, a search with SEE off that has the same budget again
    re-rank   the best few and the baseline (the best few of its search) again, on class-disjoint folds with fresh seeds
    final     the winner and its baseline on all training classes, stopped at their own e*; the test classes, once each

Nothing before `final` sees a test class. Everything is planned from the two ledgers alone, so a cut study plans the same
rows again and runs those that are missing. With ``protocol: paper`` the search itself is measured on the test classes, as
the papers did: the road is the same, and such a study never reaches the registry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from see_tune.results import Arm, EpochResult
from see_tune.search.desk import Phase, Stream
from see_tune.search.ledger import Ledger
from see_tune.search.rows import FinishedRow, Row, Side
from see_tune.spec.load import apply, trial_values
from see_tune.spec.models import SplitSpec, StudySpec, TrialSpec
from see_tune.wording import counted

# Seeds of the phases are offsets of the study's own, so that no re-rank or final run repeats the search's weights.
_RERANK_SEED, _FINAL_SEED = 100, 1000


@dataclass(frozen=True)
class Candidate:
    """One of the configurations between which the re-ranking chooses.

    curve: epoch -> objective on held-out training classes (the mean over folds where it was re-ranked).
    """

    side: Side
    lineage: str
    values: Mapping[str, Any]
    curve: Mapping[int, float]
    reranked: bool

    @property
    def epoch(self) -> int:
        """e*, the first epoch at which the curve is highest."""
        return max(self.curve, key=lambda epoch: (self.curve[epoch], -epoch))

    @property
    def value(self) -> float:
        return self.curve[self.epoch]


class Protocol:
    """The phases of one study over its two ledgers.

    until: "search" ends after the searched rows.
    off: the rows searched with SEE off; None where the baseline is not searched.
    baseline: the lineage of the SEE-off row beside the search, where it is not.
    extend: False leaves the search as it stands, and goes on from what it has found.
    """

    def __init__(
        self,
        spec: StudySpec,
        search: Ledger,
        final: Ledger,
        *,
        until: Literal["search", "final"],
        off: Ledger | None = None,
        baseline: str = "baseline",
        extend: bool = True,
    ) -> None:
        self._spec = spec
        self._off = baseline
        self._off_search = off
        self._extend = extend
        self._base = trial_values(spec)
        self._search = search
        self._final = final
        self._until = until

    # What runs, in order

    def phases(self) -> Iterator[Phase]:
        yield Phase("search", [*self._baseline_stream(), Stream(self._search, self._searched_spec, self._within_budget)])
        if self._until == "search" or self._spec.final is None or not self._complete():
            return
        if self._spec.validation.reranked and self._spec.protocol == "honest":
            self._plan_rerank()
            yield Phase("re-rank", [self._planned_stream()])
        winner = self.winner()
        if winner and self._plan_partner(winner):
            yield Phase("baseline", [self._planned_stream()])
            if winner.reranked:  # or it would be compared by one split with a mean over folds
                self._plan_folds("off", self._partner_of(winner), _outside_see(winner.values))
                yield Phase("re-rank", [self._planned_stream()])
        self._plan_final([candidate for candidate in (winner, self.baseline()) if candidate])
        yield Phase("final", [self._planned_stream()])

    def planned_trials(self) -> int:
        """Trials of the search, at most."""
        return min(self._spec.budget.trials, self._search.size or self._spec.budget.trials)

    def planned_epochs(self) -> int:
        """Epochs of training beside the search, at most: for the time left."""
        planned = plan_epochs(self._spec, self.planned_trials())
        return planned.baseline + (planned.final if self._until == "final" else 0)

    @property
    def _folds(self) -> int:
        return _rerank_folds(self._spec)

    @property
    def _has_baseline(self) -> bool:
        return _has_baseline(self._spec)

    # Search

    def _baseline_stream(self) -> Sequence[Stream]:
        if self._off_search is not None:
            return (Stream(self._off_search, self._off_spec, self._off_may_start),)
        if not self._has_baseline:
            return ()
        self._final.plan(self._off, {"phase": "baseline", "side": "off", "values": {}})
        return (self._planned_stream(),)

    def _planned_stream(self) -> Stream:
        return Stream(self._final, self._planned_spec)

    def _searched_spec(self, row: Row) -> TrialSpec:
        return apply(self._base, row.values)

    def _off_spec(self, row: Row) -> TrialSpec:
        return apply(self._base, {"see.enabled": False, **row.values})

    def _within_budget(self) -> bool:
        return self._may_start(self._search)

    def _off_may_start(self) -> bool:
        """In turn with the search, so that neither uses up the hours of the other."""
        assert self._off_search is not None
        in_turn = self._off_search.started() <= self._search.started() or not self._within_budget()
        return in_turn and self._may_start(self._off_search)

    def _may_start(self, ledger: Ledger) -> bool:
        if not self._extend:
            return False
        ended = self._ended(ledger)
        return not ended or (ended != "hours" and bool(ledger.waiting_lineages()))  # as if they had not been cut

    def search_ended(self) -> str:
        """The limit of the budget that is used up, or ``exhausted`` where no point is left; empty where a trial may begin."""
        off_ended = self._ended(self._off_search) if self._off_search is not None else "trials"
        return self._ended(self._search) if off_ended else ""

    def _ended(self, ledger: Ledger) -> str:
        budget = self._spec.budget
        if ledger.started() >= budget.trials:
            return "trials"
        if budget.hours and ledger.spent_s / 3600 >= budget.hours:
            return "hours"
        if budget.device_hours and ledger.trained_s / 3600 >= budget.device_hours:
            return "device_hours"
        return "exhausted" if ledger.exhausted else ""

    def _complete(self, ledger: Ledger | None = None) -> list[FinishedRow]:
        """Complete rows of a search, best first."""
        complete = [row for row in (ledger or self._search).finished() if row.value is not None]
        return sorted(complete, key=lambda row: -(row.value or 0.0))

    # Re-rank

    def _plan_rerank(self) -> None:
        for row in self._complete()[: self._spec.validation.reranked]:
            self._plan_folds("see", row.lineage, row.values)
        if self._off_search is not None:
            for row in self._complete(self._off_search)[: self._spec.validation.reranked]:
                self._plan_folds("off", row.lineage, row.values)
        elif any(row.lineage == self._off and row.value is not None for row in self._final.finished()):
            self._plan_folds("off", self._off, {})

    def _plan_folds(self, side: Side, lineage: str, values: Mapping[str, Any]) -> None:
        for fold in range(self._folds):
            plan = {"phase": "rerank", "side": side, "of": lineage, "values": dict(values), "fold": fold}
            self._final.plan(f"rerank-{lineage}-f{fold}of{self._folds}", plan | {"folds": self._folds})

    def candidates(self) -> list[Candidate]:
        """SEE's configurations that may win: the re-ranked ones, or, without a re-ranking, the complete ones; best first."""
        return self._candidates("see", self._search)

    def _candidates(self, side: Side, ledger: Ledger) -> list[Candidate]:
        rows, curves = self._complete(ledger), self._rerank_curves()
        found = [Candidate(side, row.lineage, row.values, curves[row.lineage], True) for row in rows if row.lineage in curves]
        if not found:
            curves = ledger.histories()
            found = [Candidate(side, row.lineage, row.values, curves[row.lineage], False) for row in rows]
        return sorted(found, key=lambda candidate: -candidate.value)

    def winner(self) -> Candidate | None:
        return next(iter(self.candidates()), None)

    def baseline(self) -> Candidate | None:
        """The SEE-off configuration that the winner is compared with: the same everything else, or the best of its own search."""
        if self._off_search is not None:
            return next(iter(self._candidates("off", self._off_search)), None)
        winner = self.winner()
        lineage = self._partner_of(winner) if winner else self._off
        row = next((row for row in self._final.finished() if row.lineage == lineage and row.value is not None), None)
        if row is None:
            return None
        curve = self._rerank_curves().get(lineage)
        return Candidate("off", lineage, row.plan["values"], curve or self._final.history(lineage), bool(curve))

    def _rerank_curves(self) -> dict[str, dict[int, float]]:
        """Lineage -> mean over its folds, of every configuration all of whose folds are complete."""
        histories = self._final.histories()
        folds: dict[str, list[dict[int, float]]] = defaultdict(list)
        for row in self._final.finished():
            if row.plan["phase"] == "rerank" and row.plan["folds"] == self._folds and row.value is not None:
                folds[row.plan["of"]].append(histories[row.lineage])
        whole = {lineage: curves for lineage, curves in folds.items() if len(curves) == self._folds}
        return {lineage: _mean_curve(curves) for lineage, curves in whole.items()}

    # Baseline of a winner whose values differ outside `see`

    def _partner_of(self, winner: Candidate) -> str:
        own = _outside_see(winner.values) and self._has_baseline and self._off_search is None
        return f"baseline-{winner.lineage}" if own else self._off

    def _plan_partner(self, winner: Candidate) -> bool:
        lineage = self._partner_of(winner)
        if lineage != self._off:
            self._final.plan(lineage, {"phase": "baseline", "side": "off", "values": _outside_see(winner.values)})
        return lineage != self._off

    # Final

    def _plan_final(self, arms: Sequence[Candidate]) -> None:
        seeds = self._spec.final.seeds if self._spec.final else 0
        for seed in range(seeds):
            for arm in arms:
                plan = {"phase": "final", "side": arm.side, "of": arm.lineage, "values": dict(arm.values)}
                more = {"seed": seed, "epoch": arm.epoch, "see_enabled": self._see_enabled(arm)}
                self._final.plan(final_lineage(arm, seed), plan | more)

    def _planned_spec(self, row: Row) -> TrialSpec:
        plan = row.plan
        trial = apply(self._base, plan["values"])
        if plan["side"] == "off":
            trial = apply(trial, {"see.enabled": False})
        match plan["phase"]:
            case "rerank":
                split = SplitSpec(kind="fold", seed=self._spec.seed, folds=plan["folds"], fold=plan["fold"])
                seed = self._spec.seed + _RERANK_SEED + plan["fold"]
                return trial.model_copy(update={"split": split, "seed": seed, "members": ()})
            case "final":
                seed = self._spec.seed + _FINAL_SEED + plan["seed"]
                once = {"split": SplitSpec(kind="test"), "seed": seed, "members": ()}
                return trial.model_copy(update=once | {"stop_epoch": plan["epoch"]})
            case _:
                return trial

    # The answer

    def arms(self) -> tuple[Arm | None, Arm | None]:
        """(SEE with the winner's values, SEE off), each with what its final runs measured so far."""
        winner, baseline = self.winner(), self.baseline()
        return self._arm(winner) if winner else None, self._arm(baseline) if baseline else None

    def _arm(self, candidate: Candidate) -> Arm:
        finals = [row for row in self._final.finished() if _is_final_of(row, candidate)]
        metrics = [row.result.epochs[-1].metrics for row in finals]
        names = sorted({name for values in metrics for name in values if name.startswith("test/")}, key=_metric_order)
        see_enabled = self._see_enabled(candidate)
        return Arm(
            candidate.lineage,
            dict(candidate.values),
            {self._base.objective_metric: candidate.value} | self._validation_metrics(candidate),
            candidate.epoch,
            candidate.reranked,
            tuple(row.plan["seed"] for row in finals),
            {name: tuple(values[name] for values in metrics) for name in names},
            see_enabled=see_enabled,
            see_expands=see_enabled and apply(self._base, candidate.values).expands_by(candidate.epoch),
        )

    def _see_enabled(self, candidate: Candidate) -> bool:
        """A search may choose SEE off, too."""
        return candidate.side == "see" and apply(self._base, candidate.values).see.enabled

    def _validation_metrics(self, candidate: Candidate) -> dict[str, float]:
        """Every measured metric of a configuration's own row (not of its folds) at its best epoch."""
        if candidate.reranked:
            return {}
        rows = [*self._search.finished(), *self._final.finished(), *(self._off_search.finished() if self._off_search else ())]
        own: list[EpochResult] = [epoch for row in rows if row.lineage == candidate.lineage for epoch in row.result.epochs]
        best = next((epoch for epoch in own if epoch.epoch == candidate.epoch), None)
        return {name: value for name, value in best.metrics.items() if name.startswith(("val/", "test/"))} if best else {}


def plan_text(spec: StudySpec) -> str:
    """What comes after the search, in words."""
    if spec.final is None:
        return "no final phase"
    validation = spec.validation
    twice = "2 x " if spec.searches_baseline else ""
    rerank = f"re-rank {twice}{validation.reranked} x {validation.rerank_folds}, " if validation.reranked else ""
    beside = "SEE off searched as well, " if spec.searches_baseline else ""
    return f"{beside}{rerank}final {counted(spec.final.seeds, 'seed')} x {1 if spec.final.baseline == 'none' else 2}"


@dataclass(frozen=True)
class PlannedEpochs:
    """Epochs of training, at most: nothing is pruned, and final runs go to the horizon.

    search: of the trials; baseline: with SEE off beside them; final: of the re-ranking and the final runs.
    """

    search: int
    baseline: int
    final: int


def plan_epochs(spec: StudySpec, trials: int) -> PlannedEpochs:
    """How much a study of so many trials trains."""
    a_trial, horizon, sides = trial_values(spec).epochs_in_all, spec.train.epochs, 1 + _has_baseline(spec)
    searched = trials if spec.searches_baseline else 1
    baseline = a_trial * searched * _has_baseline(spec)
    if spec.final is None:
        return PlannedEpochs(a_trial * trials, baseline, 0)
    top = spec.validation.reranked
    beside = (top if spec.searches_baseline else 1) * _has_baseline(spec)
    final = horizon * ((top + beside) * _rerank_folds(spec) + spec.final.seeds * sides)
    return PlannedEpochs(a_trial * trials, baseline, final)


def _rerank_folds(spec: StudySpec) -> int:
    return spec.validation.rerank_folds if spec.validation.reranked and spec.protocol == "honest" else 0


def _has_baseline(spec: StudySpec) -> bool:
    return spec.see.enabled and (spec.final is None or spec.final.baseline != "none")


def final_lineage(arm: Candidate, seed: int) -> str:
    """A final run's name; with the epoch in it, so that a winner chosen anew is trained anew."""
    return f"final-{arm.side}-{arm.lineage}-e{arm.epoch}-s{seed}"


def _mean_curve(curves: Sequence[Mapping[int, float]]) -> dict[int, float]:
    return {epoch: fmean(curve[epoch] for curve in curves) for epoch in curves[0] if all(epoch in curve for curve in curves)}


def _is_final_of(row: FinishedRow, candidate: Candidate) -> bool:
    return row.value is not None and row.lineage.startswith(final_lineage(candidate, 0).removesuffix("0")) and "seed" in row.plan


def _outside_see(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not name.startswith("see.")}


def _metric_order(name: str) -> tuple[str, int]:
    stem, _, k = name.rpartition("_")
    return (stem, int(k)) if k.isdigit() else (name, 0)
