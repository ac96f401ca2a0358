"""The ledger: the Optuna storage of one study, and the one truth about its trials.

A row is one Optuna trial. Its *lineage* (``t017``) names the piece of work and its checkpoint folder; a piece of work that
was cut is enqueued again under the same lineage, and the cut row is marked *superseded* and counts for nothing: not for the
sampler, the pruner, the budget or any table. So whatever is killed, each lineage finishes once.

The rows of one study lie in Optuna studies of one storage:

    <study>          searched rows: Optuna's sampler chooses their values, its pruner judges them
    <study>/off      the same with SEE off (``o004``), where the baseline is searched as well
    <study>/final    planned rows: the SEE-off baseline, the re-ranking and the final runs; nothing is sampled

A row may also be *adopted*: trained under an earlier search space of the same study, it counts like any other, and only the
pruner does not see it. A *known* point was trained by another study: it informs the sampler and is no row of this one.

Ray is not known here, and nothing but this module, `storage` beside it and the report's figures knows Optuna.
"""

from __future__ import annotations

import re
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from see_tune.results import EpochResult, TrialResult, TrialStatus
from see_tune.search.rows import OFF, CutRow, FinishedRow, Row, RunningRow, Side
from see_tune.spec.models import PrunerSpec, SamplerSpec
from see_tune.spec.space import Choice, Domain, FloatRange, IntRange, Space, Value, point_key

# User attributes of Optuna's trials.
_LINEAGE, _PLAN, _RESULT, _DURATION = "lineage", "plan", "result", "duration_s"
_CURVE = "curve"  # epoch -> objective, where a row counts with another than it reported
_SUPERSEDED = "superseded"  # cut, and enqueued again under its lineage
_JUDGED = "judged_epochs"  # of a row that was cut: the pruner has spoken on so many of its epochs
_ADOPTED = "adopted"  # trained under an earlier search space of the same study
_KNOWN = "known"  # another study's trial, and nothing but a point for the sampler

_STATES: Mapping[TrialStatus, TrialState] = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}
_FINISHED = tuple(_STATES.values())
# User attributes of Optuna's studies.
_SPEC = "spec"
_SPENT = "spent_s"
_EXHAUSTED = "exhausted"  # by the sampler of this name
_FAILED_BEFORE = "failed_before"  # numbers of rows that failed in an earlier session, and were taken back
_GIVEN_UP = "given_up"  # the last session ended because its trials failed
_DUPLICATES_IN_A_ROW = 20


class _AmongPeers(BasePruner):
    """A pruner that sees the rows of this search space alone.

    A superseded row's rung values would compete with its own successor's; adopted and known ones stood on other rungs.
    """

    def __init__(self, pruner: BasePruner) -> None:
        self.pruner = pruner

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        return self.pruner.prune(_StudyView(study), trial)  # type: ignore[arg-type]


class _StudyView:
    """An Optuna study less what the pruner must not see."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def get_trials(self, deepcopy: bool = True, states: tuple[TrialState, ...] | None = None) -> list[FrozenTrial]:
        hidden = {_SUPERSEDED, _ADOPTED, _KNOWN}
        return [trial for trial in self._study.get_trials(deepcopy, states) if hidden.isdisjoint(trial.user_attrs)]


class Ledger:
    """Rows of one Optuna study: handed out, reported to, told, and re-queued after a cut.

    sampler: its name, where new points are suggested; "" in a ledger of planned rows.
    side: "off": its rows are searched with SEE off; they are called ``o004`` and carry the plan of a baseline.
    first_number: lineages below it are taken by rows of an earlier search space.
    """

    def __init__(
        self, study: optuna.Study, space: Space | None = None, *, sampler: str = "", side: Side = "see", first_number: int = 0
    ) -> None:
        self._study = study
        self._space = space
        self._sampler = sampler
        self._side = side
        self._first_number = first_number
        self._size = space.size if space is not None else None
        self._grid: Iterator[dict[str, Value]] = space.points() if space is not None and sampler == "grid" else iter(())
        self._open: dict[str, Trial] = {}
        self._trained: dict[str, dict[int, float]] = {}  # rows that are out: epoch -> seconds
        self._parsed: dict[int, FinishedRow] = {}  # a row that ended never changes again
        self._keys: dict[int, tuple[tuple[str, str, str], ...]] = {}
        self._failed_before: set[int] = set(study.user_attrs.get(_FAILED_BEFORE, ()))
        self._spent_before = float(study.user_attrs.get(_SPENT, 0.0))
        self._opened_at = time.monotonic()

    # Handing out

    def ask(self) -> Row | None:
        """The next row: what is enqueued first, then, for a searched study, what the sampler suggests.

        A point of a discrete space that a row holds already is answered from the storage: it is dropped and costs nothing.

        None: nothing is enqueued, and nothing is to be sampled or the space is exhausted.
        """
        for _ in range(_DUPLICATES_IN_A_ROW):
            if not self._waiting() and not self._may_sample():
                return None
            trial = self._study.ask()
            values = self._suggest(trial, self._space) if self._space else {}
            lineage = trial.user_attrs.get(_LINEAGE)
            if lineage is None and self._size is not None and point_key(values) in self._tried(beside=trial.number):
                self._drop(trial)
                continue
            lineage = lineage or self._next_lineage()
            trial.set_user_attr(_LINEAGE, lineage)
            if self._side == "off":
                trial.set_user_attr(_PLAN, {"phase": "baseline", "side": "off", "values": values})
            self._open[lineage] = trial
            return Row(trial.number, lineage, values, trial.user_attrs.get(_PLAN, {}))
        self._study.set_user_attr(_EXHAUSTED, self._sampler)
        return None

    @property
    def size(self) -> int | None:
        """How many points the space has at most; None where it is continuous."""
        return self._size

    @property
    def exhausted(self) -> bool:
        """Whether this sampler has nothing new to suggest: each point has its row, or 20 in a row had one."""
        return bool(self._sampler) and self._study.user_attrs.get(_EXHAUSTED) == self._sampler

    def _may_sample(self) -> bool:
        """Whether the sampler has a point left; a grid's next one is enqueued."""
        if not self._sampler or self.exhausted:
            return False
        if self._size is None:
            return True
        tried = self._tried()
        point = next((point for point in self._grid if point_key(point) not in tried), None)
        if point:
            self._study.enqueue_trial(point)
        if point or (self._sampler != "grid" and len(tried) < self._size):
            return True
        self._study.set_user_attr(_EXHAUSTED, self._sampler)
        return False

    def _tried(self, beside: int | None = None) -> set[tuple[tuple[str, str, str], ...]]:
        """The points of all rows that were handed out, but for the one whose number is `beside`."""
        rows = (trial for trial in self._rows() if trial.state != TrialState.WAITING and trial.number != beside)
        return {self._key_of(trial) for trial in rows}

    def _key_of(self, trial: FrozenTrial) -> tuple[tuple[str, str, str], ...]:
        if not trial.state.is_finished():
            return point_key(trial.params)
        if trial.number not in self._keys:
            self._keys[trial.number] = point_key(trial.params)
        return self._keys[trial.number]

    def enqueue(self, values: Mapping[str, Value]) -> None:
        """A point to be tried before anything is sampled; one that the ledger has a row for already is left alone."""
        rows = [trial for trial in self._study.get_trials(deepcopy=False) if _KNOWN not in trial.user_attrs]
        held = {point_key(trial.system_attrs.get("fixed_params", trial.params)) for trial in rows}
        if point_key(values) not in held:
            self._study.enqueue_trial(dict(values))

    def plan(self, lineage: str, plan: Mapping[str, Any]) -> None:
        """Enqueue a planned row, unless the ledger holds its lineage already (waiting, running or finished)."""
        if not self.holds(lineage):
            self._study.enqueue_trial({}, user_attrs={_LINEAGE: lineage, _PLAN: dict(plan)})

    def _suggest(self, trial: Trial, space: Space) -> dict[str, Value]:
        known: dict[str, Value] = dict(space.fixed)
        for parameter in space.parameters:
            if parameter.active(known):
                known[parameter.name] = _suggest_value(trial, parameter.name, parameter.domain)
        return {parameter.name: known[parameter.name] for parameter in space.parameters if parameter.name in known}

    def _next_lineage(self) -> str:
        return f"{'t' if self._side == 'see' else OFF}{self.next_number():03d}"

    def next_number(self) -> int:
        """The number of the next new lineage; a row that was cut and enqueued again keeps its own."""
        taken = (trial.user_attrs.get(_LINEAGE) for trial in self._study.get_trials(deepcopy=False))
        return max((self._first_number, *(int(lineage[1:]) + 1 for lineage in taken if lineage)))

    # Taking back

    def report(self, lineage: str, epoch: int, value: float) -> bool:
        """Record the objective after an epoch; True when the pruner ends the row here.

        Idempotent by epoch. An epoch that was reported before the row was cut writes its rung again (`should_prune` does
        that, not `report`), and its verdict, which was given then, is not given again: whether the epoch comes from a
        checkpoint's history or had to be trained once more.
        """
        trial = self._open[lineage]
        trial.report(value, epoch)
        return trial.should_prune() and epoch > trial.user_attrs.get(_JUDGED, 0)

    def count_epoch(self, lineage: str, epoch: int, seconds: float) -> None:
        """An epoch of a row that is out was trained, here or before the row was cut; again, it changes nothing."""
        self._trained.setdefault(lineage, {})[epoch] = seconds

    def tell(self, lineage: str, result: TrialResult, *, curve: Mapping[int, float] | None = None) -> None:
        """Close a row with how it ended; an interrupted one goes back into the queue.

        curve: epoch -> objective that the row counts with from now on, where it is another than what was reported (a mean
        over folds); the pruner goes on comparing what was reported.
        """
        trial = self._open.pop(lineage)
        if result.status == "interrupted":
            self._requeue(self._frozen(trial.number))
            return
        trial.set_user_attr(_DURATION, sum(epoch.duration_s for epoch in result.epochs))
        trial.set_user_attr(_RESULT, _without_history(result).to_json())
        if curve is not None:
            trial.set_user_attr(_CURVE, {str(epoch): value for epoch, value in curve.items()})
        self._study.set_user_attr(_SPENT, self.spent_s)
        self._study.tell(trial, result.best_value if result.status == "complete" else None, state=_STATES[result.status])

    # From elsewhere

    @property
    def spec_text(self) -> str:
        """The study file under which this ledger was begun; empty until `begin`."""
        return str(self._study.user_attrs.get(_SPEC, ""))

    @property
    def spent_s(self) -> float:
        """Wall-clock seconds of all sessions, each counted up to the end of its last row, and this one up to now."""
        return self._spent_before + time.monotonic() - self._opened_at

    def begin(self, spec_text: str, *, spent_s: float = 0.0) -> None:
        """Keep the study file beside the rows that are searched by it. spent_s: by earlier search spaces."""
        self._spent_before += spent_s
        self._study.set_user_attr(_SPEC, spec_text)

    def adopt(self, row: FinishedRow, values: Mapping[str, Value], history: Mapping[int, float]) -> None:
        """Take over a row that an earlier search space of this study finished, as a point of this one."""
        self._add(row, values, history, {_LINEAGE: row.lineage, _ADOPTED: True} | ({_PLAN: dict(row.plan)} if row.plan else {}))

    def learn(self, row: FinishedRow, values: Mapping[str, Value], history: Mapping[int, float], origin: str) -> None:
        """Let the sampler know of a row of another study; once. It is no row of this one, and uses no budget."""
        if origin not in {trial.user_attrs.get(_KNOWN) for trial in self._study.get_trials(deepcopy=False)}:
            self._add(row, values, history, {_KNOWN: origin})

    def _add(self, row: FinishedRow, values: Mapping[str, Value], history: Mapping[int, float], attrs: Mapping[str, Any]) -> None:
        assert self._space is not None  # nothing is searched in a ledger of planned rows
        domains = {parameter.name: parameter.domain for parameter in self._space.parameters}
        trial = create_trial(
            state=_STATES[row.result.status],
            value=row.value,
            params=dict(values),
            distributions={name: _distribution(domains[name]) for name in values},
            user_attrs={_DURATION: row.duration_s, _RESULT: row.result.to_json(), **attrs},
            intermediate_values=dict(history),
        )
        trial.datetime_start = trial.datetime_complete = row.ended_at
        self._study.add_trial(trial)

    def continue_cut(self, cut: CutRow, values: Mapping[str, Value]) -> None:
        """Enqueue what an earlier search space of this study left unfinished, as a point of this one."""
        attrs = {_LINEAGE: cut.lineage, _JUDGED: cut.judged_epochs, _DURATION: cut.duration_s}
        self._study.enqueue_trial(dict(values), user_attrs=attrs)

    def holds(self, lineage: str) -> bool:
        """Whether a row of this lineage is waiting, running or finished here."""
        return any(trial.user_attrs.get(_LINEAGE) == lineage for trial in self._rows())

    # After a cut

    def requeue_interrupted(self) -> tuple[str, ...]:
        """Enqueue again whatever a dead driver left RUNNING, under its own lineage, so that no row stays RUNNING."""
        cut = [trial for trial in self._study.get_trials(deepcopy=False) if trial.state == TrialState.RUNNING]
        for trial in cut:
            self._requeue(trial)
        self._open.clear()
        return tuple(str(trial.user_attrs.get(_LINEAGE, f"row {trial.number}")) for trial in cut)

    def _requeue(self, trial: FrozenTrial) -> None:
        # First the successor, then the end of the cut row: a kill between the two repeats this, and the check for a
        # waiting row keeps it from being enqueued twice.
        self._enqueue_again(trial)
        self._study._storage.set_trial_user_attr(trial._trial_id, _SUPERSEDED, True)
        self._study.tell(trial.number, state=TrialState.FAIL)

    def _enqueue_again(self, trial: FrozenTrial) -> None:
        lineage = trial.user_attrs.get(_LINEAGE)
        if lineage is None or lineage not in {waiting.user_attrs.get(_LINEAGE) for waiting in self._waiting()}:
            attrs = {key: trial.user_attrs[key] for key in (_LINEAGE, _PLAN) if key in trial.user_attrs}
            attrs[_JUDGED] = max(trial.user_attrs.get(_JUDGED, 0), *trial.intermediate_values, 0)
            attrs[_DURATION] = self._seconds(trial)
            self._study.enqueue_trial({**trial.system_attrs.get("fixed_params", {}), **trial.params}, user_attrs=attrs)

    def give_up(self) -> None:
        """Note that the search ends because its rows fail: what failed was then not the rows' own fault."""
        self._study.set_user_attr(_GIVEN_UP, True)

    def retry_failed(self) -> tuple[str, ...]:
        """After a session that gave up, enqueue what failed again, each under its own lineage; returns those.

        Whoever starts such a study again has mended the cause. A failure among rows that complete stands: it is an outcome.
        """
        if not self._study.user_attrs.get(_GIVEN_UP):
            return ()
        failed = [trial for trial in self._rows() if trial.state == TrialState.FAIL]
        for trial in failed:  # as in `_requeue`, a kill anywhere in here is made good by doing it all again
            self._enqueue_again(trial)
        self._take_back(failed)
        self._study.set_user_attr(_GIVEN_UP, False)
        return tuple(str(trial.user_attrs[_LINEAGE]) for trial in failed)

    def _take_back(self, failed: Sequence[FrozenTrial]) -> None:
        self._failed_before |= {trial.number for trial in failed}  # Optuna writes nothing to a trial that has ended
        self._study.set_user_attr(_FAILED_BEFORE, sorted(self._failed_before))

    def withdraw_unfinished(self) -> None:
        """Take back every row that is waiting, was left RUNNING or has failed; what is still wanted of them is planned again.

        A failed row is planned again because whoever starts a study again has mended the cause, or wants to see it once more.
        It goes on from its checkpoint, under its own lineage.
        """
        self._take_back([trial for trial in self._rows() if trial.state == TrialState.FAIL])
        for trial in self._study.get_trials(deepcopy=False):
            if not trial.state.is_finished():
                self._study._storage.set_trial_user_attr(trial._trial_id, _SUPERSEDED, True)
                self._study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        self._open.clear()

    def withdrawn(self) -> tuple[str, ...]:
        """Lineages that were begun, cut, taken back, and not planned again."""
        cut = (trial for trial in self._study.get_trials(deepcopy=False) if _SUPERSEDED in trial.user_attrs)
        begun = {trial.user_attrs.get(_LINEAGE) for trial in cut if trial.datetime_start is not None}
        return tuple(sorted(lineage for lineage in begun if lineage and not self.holds(lineage)))

    # Reading

    def finished(self) -> tuple[FinishedRow, ...]:
        """Every row that ended, in the order of its lineage; superseded rows are not rows."""
        rows = [self._finished_row(trial) for trial in self._rows() if trial.state in _FINISHED]
        return tuple(sorted(rows, key=lambda row: row.lineage))

    def cut(self) -> tuple[CutRow, ...]:
        """Rows that were begun and wait to go on."""
        return tuple(
            CutRow(
                trial.user_attrs[_LINEAGE],
                trial.system_attrs.get("fixed_params", {}),
                trial.user_attrs.get(_JUDGED, 0),
                self._seconds(trial),
            )
            for trial in self._waiting()
            if _LINEAGE in trial.user_attrs
        )

    def running(self) -> tuple[RunningRow, ...]:
        """Rows that are out, as the storage knows them: those of a driver that lives, or what a dead one left."""
        return tuple(
            RunningRow(
                str(trial.user_attrs.get(_LINEAGE, f"row-{trial.number}")),
                dict(trial.intermediate_values),
                trial.user_attrs.get(_PLAN, {}),
            )
            for trial in self._rows()
            if trial.state == TrialState.RUNNING
        )

    @property
    def trained_s(self) -> float:
        """Seconds of training of all rows, also of those that are out or were cut; a killed driver's tell them as they go on."""
        return sum(map(self._seconds, self._rows()))

    def _seconds(self, trial: FrozenTrial) -> float:
        known = float(trial.user_attrs.get(_DURATION, 0.0))  # of a row that goes on, until its checkpoint tells of more
        return max(known, sum(self._trained.get(trial.user_attrs.get(_LINEAGE, ""), {}).values()))

    def started(self) -> int:
        """How many rows were handed out and not superseded: what a budget of trials counts."""
        return sum(trial.state != TrialState.WAITING for trial in self._rows())

    def waiting_lineages(self) -> tuple[str, ...]:
        """Rows that were cut and wait to go on; they belong to the budget already."""
        return tuple(trial.user_attrs[_LINEAGE] for trial in self._waiting() if _LINEAGE in trial.user_attrs)

    def history(self, lineage: str) -> dict[int, float]:
        """Epoch -> objective of the living row of a lineage."""
        return self.histories().get(lineage, {})

    def histories(self) -> dict[str, dict[int, float]]:
        """Lineage -> epoch -> objective of every living row."""
        return {str(trial.user_attrs[_LINEAGE]): _curve(trial) for trial in self._rows() if _LINEAGE in trial.user_attrs}

    def _drop(self, trial: Trial) -> None:
        trial.set_user_attr(_SUPERSEDED, True)
        self._study.tell(trial, state=TrialState.FAIL)

    def _rows(self) -> list[FrozenTrial]:
        hidden = {_SUPERSEDED, _KNOWN}
        trials = self._study.get_trials(deepcopy=False)
        return [trial for trial in trials if hidden.isdisjoint(trial.user_attrs) and trial.number not in self._failed_before]

    def _waiting(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))

    def _frozen(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]

    def _finished_row(self, trial: FrozenTrial) -> FinishedRow:
        if trial.number not in self._parsed:
            self._parsed[trial.number] = _parse_finished(trial)
        return self._parsed[trial.number]


def _curve(trial: FrozenTrial) -> dict[int, float]:
    told = trial.user_attrs.get(_CURVE)
    return {int(epoch): value for epoch, value in told.items()} if told else dict(trial.intermediate_values)


def _parse_finished(trial: FrozenTrial) -> FinishedRow:
    told = trial.user_attrs.get(_RESULT)
    result = TrialResult.from_json(told) if told else TrialResult("failed", cause="its end was not recorded")
    return FinishedRow(
        trial.number,
        str(trial.user_attrs.get(_LINEAGE, f"row-{trial.number}")),
        trial.params,
        trial.user_attrs.get(_PLAN, {}),
        result,
        trial.value if trial.state == TrialState.COMPLETE else None,
        float(trial.user_attrs.get(_DURATION, 0.0)),
        trial.datetime_complete,
    )


Storage = str | optuna.storages.BaseStorage


def studies_of(storage: Storage, study: str) -> list[str]:
    """The Optuna studies that hold the searched rows of `study`, one for each search space it has had; oldest first."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    later = re.compile(rf"{re.escape(study)}/g(\d+)")
    names = optuna.get_all_study_names(storage)
    numbers = {name: int(matched[1]) for name in names if (matched := later.fullmatch(name))}
    return [name for name in names if name == study] + sorted(numbers, key=lambda name: numbers[name])


def read_ledger(storage: Storage, study: str) -> Ledger:
    """The ledger of an Optuna study that exists, to look at its rows; nothing can be asked of it."""
    return Ledger(optuna.load_study(storage=storage, study_name=study, sampler=RandomSampler(), pruner=NopPruner()))


def drop_study(storage: Storage, study: str) -> None:
    """Remove an Optuna study with all its rows."""
    optuna.delete_study(storage=storage, study_name=study)


def open_search_ledger(
    storage: Storage,
    study: str,
    space: Space,
    *,
    sampler: SamplerSpec,
    pruner: PrunerSpec,
    grace_epochs: int,
    side: Side = "see",
    first_number: int = 0,
) -> Ledger:
    """The ledger of the searched rows of `study`, created if it does not exist.

    storage: an Optuna storage URL (``sqlite:////abs/path``, ``postgresql+psycopg://...``).
    grace_epochs: no row is judged before this epoch.
    first_number: the first lineage's; those below are taken by rows of an earlier search space.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    opened = optuna.create_study(storage=storage, study_name=study, direction="maximize", load_if_exists=True)
    opened.pruner = _AmongPeers(_build_pruner(pruner, grace_epochs))
    opened.sampler = _build_sampler(sampler, space, first_number + len(opened.get_trials(deepcopy=False)))
    return Ledger(opened, space, sampler=sampler.name, side=side, first_number=first_number)


def open_final_ledger(storage: Storage, study: str) -> Ledger:
    """The ledger of the planned rows of `study`: baseline, re-ranking, final runs."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    opened = optuna.create_study(storage=storage, study_name=f"{study}/final", direction="maximize", load_if_exists=True)
    opened.pruner = NopPruner()
    opened.sampler = RandomSampler()
    return Ledger(opened)


def _build_pruner(spec: PrunerSpec, grace_epochs: int) -> BasePruner:
    match spec.name:
        case "asha":
            return SuccessiveHalvingPruner(min_resource=grace_epochs, reduction_factor=spec.reduction_factor)
        case "median":
            return MedianPruner(n_startup_trials=4, n_warmup_steps=grace_epochs - 1)
        case "none":
            return NopPruner()


def _build_sampler(spec: SamplerSpec, space: Space, trials_so_far: int) -> BaseSampler:
    # A second process with the same seed on the same storage would suggest the same points again.
    seed = zlib.crc32(f"{spec.seed}/{trials_so_far}".encode())
    conditional = any(parameter.when for parameter in space.parameters)
    match spec.name:
        case "tpe":
            # Without `group`, a conditional space is sampled jointly only where all trials have all parameters.
            return TPESampler(seed=seed, group=conditional, multivariate=True, constant_liar=True)
        case "random":
            return RandomSampler(seed=seed)
        case "grid":
            return RandomSampler(seed=seed)  # the ledger enqueues the product, point by point; nothing is left to sample
        case "qmc":
            with warnings.catch_warnings():  # Optuna has called it experimental since 3.0
                warnings.simplefilter("ignore", ExperimentalWarning)
                # Its position in the sequence is kept in the storage, so its seed stays.
                return QMCSampler(seed=spec.seed, scramble=True)
        case "cmaes":
            return CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case "gp":
            return GPSampler(seed=seed)


def _distribution(domain: Domain) -> BaseDistribution:
    match domain:
        case IntRange(low, high, log, step):
            return IntDistribution(low, high, log, step)
        case FloatRange(low, high, log, step):
            return FloatDistribution(low, high, log, step)
        case Choice(options):
            return CategoricalDistribution(options)


def _suggest_value(trial: Trial, name: str, domain: Domain) -> Value:
    match domain:
        case IntRange(low, high, log, step):
            return trial.suggest_int(name, low, high, log=log, step=step)
        case FloatRange(low, high, log, step):
            return trial.suggest_float(name, low, high, log=log, step=step)
        case Choice(options):
            chosen: Any = trial.suggest_categorical(name, options)
            value: Value = chosen
            return value


def _without_history(result: TrialResult) -> TrialResult:
    """The result for the storage, less all epochs but the best and the last: rows stay small, the checkpoint has the rest."""
    kept: tuple[EpochResult, ...] = tuple(
        epoch for epoch in result.epochs if epoch.epoch == result.best_epoch or epoch is result.epochs[-1]
    )
    return TrialResult(
        result.status, kept, result.best_epoch, result.best_value, result.cause, result.traceback, result.device, result.facts
    )
