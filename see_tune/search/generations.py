"""Generations: a study whose search space was changed goes on, with the finished trials that fit.

    small         the space that the study began with
    small/g2      after the first change, and so on: one Optuna study each, all in the same storage
    small/off     the search with SEE off, where there is one; small/off/g2 after a change of it
    small/final   the planned rows of all generations

Optuna holds a parameter to the distribution that its study saw first: a widened range is hardly sampled beyond its old ends
and another list of choices is refused. So a changed space begins an Optuna study of its own. What was trained before and fits
is added again under the new distributions, under its own lineage, and counts like any other row; what was cut goes on from
its checkpoint. Each generation keeps its spec beside its trials, so that a driver killed half way does the rest at its next
start, and a space that is widened again finds the rows that had left it.

A warm start is the same step between two studies: their trials become points that the sampler knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from see_tune.addresses import find_storage, record_storage, stored_address
from see_tune.errors import StudyError, UserError
from see_tune.home import Home, StudyFolder
from see_tune.search.ledger import Ledger, Storage, drop_study, open_final_ledger, open_search_ledger, read_ledger, studies_of
from see_tune.search.rows import Side
from see_tune.search.storage import PatientStorage, open_storage, reach_storage, view_storage
from see_tune.spec.fitting import fitted, trained
from see_tune.spec.load import (
    Loaded,
    differences,
    dump_study,
    grace_epochs,
    identity_differences,
    parse_study,
    read,
    trial_values,
)
from see_tune.spec.models import StudySpec
from see_tune.spec.points import Point
from see_tune.wording import counted


@dataclass(frozen=True)
class Generation:
    """One search space of a study, with the rows that were searched in it or fit it."""

    spec: StudySpec
    ledger: Ledger


@dataclass(frozen=True)
class Carried:
    """What became of a study's rows when its search space changed, by lineage.

    kept: finished, and rows of the new space; resumed: cut, and going on in it.
    left: finished outside the new space; abandoned: cut outside it, and never finished.
    """

    changes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    resumed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people: what changed, and what it means for the trials."""
        if not self.changes:
            return []
        kept = counted(len(self.kept), "finished trial fits and is", "finished trials fit and are")
        told = [f"the search space has changed: {kept} kept, {counted(len(self.left), 'does not', 'do not')}"]
        told += [f"  {change}" for change in self.changes]
        if outside := (*self.left, *self.abandoned):
            told.append(f"  outside the new space: {', '.join(outside)}")
        return told


@dataclass(frozen=True)
class Ledgers:
    """The ledgers of a study, ready to run.

    off: the search with SEE off; None where the baseline is not searched.
    baseline: the lineage of the one SEE-off row beside the search, where it is not.
    retried: rows that failed in a session that gave up, and are tried again.
    known: how many points of other studies the samplers were told of.
    storage: what all of them lie in.
    """

    search: Ledger
    final: Ledger
    off: Ledger | None
    baseline: str
    carried: Carried
    retried: tuple[str, ...]
    known: int
    storage: PatientStorage


def open_ledgers(loaded: Loaded, home: Home) -> Ledgers:
    """The study's ledgers in their newest generation, which is begun where the search space has changed.

    What a dead session left RUNNING, and what failed in one that gave up, is enqueued again first, then trial 0 and the points
    to start with.

    Raises: StudyError where a study to start warm from is absent or not comparable, or a storage cannot be used.
    """
    known = {name: _comparable(name, loaded, home) for name in loaded.spec.warm_start}
    folder = home.study(loaded.spec.study)
    address = find_storage(folder, loaded.spec.study, loaded.spec.storage)
    storage = open_storage(folder, address)
    final = open_final_ledger(storage, address.name)
    record_storage(folder, address)  # from here on the storage has something of this study
    final.withdraw_unfinished()  # the protocol plans again what is still wanted
    past, retried = _begun(storage, address.name)
    search, carried = _open_newest(storage, address.name, past, loaded)
    told = sum(_learn(sides["see"], name, search, loaded) for name, sides in known.items())
    off = None
    if loaded.spec.searches_baseline:
        without = without_see(loaded)
        off_name = f"{address.name}/off"
        off_past, off_retried = _begun(storage, off_name)
        off, off_carried = _open_newest(storage, off_name, off_past, without, side="off")
        for point in ([without.trial_zero] if without.trial_zero else []) + _outside_see(loaded.points, without):
            off.enqueue(point)
        carried = replace(carried, abandoned=(*carried.abandoned, *off_carried.abandoned))
        retried += off_retried
        told += sum(_learn(sides["off"], name, off, without) for name, sides in known.items())
    for point in ([loaded.trial_zero] if loaded.trial_zero else []) + list(loaded.points):
        search.enqueue(point)  # before anything is sampled, and before a grid's first point
    baseline = _baseline([*(generation.spec for generation in past), loaded.spec])
    return Ledgers(search, final, off, baseline, carried, retried, told, storage)


def without_see(loaded: Loaded) -> Loaded:
    """The same study with SEE off: what is searched for its baseline, judged from the same epoch on."""
    spec = loaded.spec.model_copy(
        update={
            "see": loaded.spec.see.model_copy(update={"enabled": False}),
            "search": loaded.spec.searched_without_see,
            "start_with": [],
            "warm_start": [],
            "pruner": loaded.spec.pruner.model_copy(update={"grace_epochs": grace_epochs(loaded)}),
            "final": None,
        }
    )
    return parse_study(dump_study(spec), str(loaded.source))


def _outside_see(points: Sequence[Point], without: Loaded) -> list[Point]:
    """What points to start with say of the search with SEE off; one that names nothing else than SEE's is none."""
    names = {parameter.name for parameter in without.space.parameters}
    parts = ({name: value for name, value in point.items() if name in names} for point in points)
    return [part for part in parts if part]


def check_storage(folder: StudyFolder, spec: StudySpec) -> Iterator[StudyError]:
    """Why the server that the trials are to lie on cannot be used, before a session needs it; nothing on a wrong address."""
    with suppress(UserError):
        address = find_storage(folder, spec.study, spec.storage)
        try:
            if address.is_server:
                reach_storage(address)
        except StudyError as error:
            yield error


def check_warm_start(loaded: Loaded, home: Home) -> Iterator[StudyError]:
    """Why each study of `warm_start` that cannot be one is none."""
    for name in loaded.spec.warm_start:
        try:
            _comparable(name, loaded, home)
        except StudyError as error:
            yield error


def view_ledgers(folder: StudyFolder, name: str) -> tuple[Ledger, Ledger, Ledger | None] | None:
    """(searched rows, planned rows, rows searched with SEE off) of the newest generation, read only, also while it runs.

    name: the study's. None before a trial. Raises: StudyError where its database cannot be reached.
    """
    address = stored_address(folder, name)
    if address is None:
        return None
    storage = view_storage(folder, address)
    begun, off = studies_of(storage, address.name), studies_of(storage, f"{address.name}/off")
    if not begun:
        return None
    final = read_ledger(storage, f"{address.name}/final")
    return read_ledger(storage, begun[-1]), final, read_ledger(storage, off[-1]) if off else None


def _begun(storage: Storage, name: str) -> tuple[list[Generation], tuple[str, ...]]:
    """The generations so far, oldest first, with what a dead session left RUNNING waiting again.

    And the rows that failed in one that gave up: they wait again, too.
    """
    found: list[Generation] = []
    retried: tuple[str, ...] = ()
    for study in studies_of(storage, name):
        ledger = read_ledger(storage, study)
        if not ledger.spec_text and found:
            drop_study(storage, study)  # killed while it was begun: it holds nothing but copies
        elif ledger.spec_text:
            ledger.requeue_interrupted()
            retried += ledger.retry_failed()
            found.append(Generation(parse_study(ledger.spec_text, study).spec, ledger))
    return found, retried


def _open_newest(
    storage: Storage, name: str, past: list[Generation], loaded: Loaded, side: Side = "see"
) -> tuple[Ledger, Carried]:
    """The ledger of the file's search space; `past` is left with the generations before it."""
    before = past[-1] if past else None
    if before and _same_search(before.spec, loaded.spec):
        past.pop()
    ledger = open_search_ledger(
        storage,
        name if not past else f"{name}/g{len(past) + 1}",
        loaded.space,
        sampler=loaded.spec.sampler,
        pruner=loaded.spec.pruner,
        grace_epochs=grace_epochs(loaded),
        side=side,
        first_number=max((generation.ledger.next_number() for generation in past), default=0),
    )
    ledger.requeue_interrupted()
    carried = Carried()
    if not ledger.spec_text:
        if past:
            carried = _carry_over(past, ledger, loaded)
        spent_s = past[-1].ledger.spent_s if past else 0.0
        ledger.begin(dump_study(loaded.spec), spent_s=spent_s)  # the last step: until then it is begun anew at the next start
    return ledger, carried


def _carry_over(past: Sequence[Generation], ledger: Ledger, loaded: Loaded) -> Carried:
    """Every row of the study, as the newest generation that has it knows it: into the new space, or left out."""
    finished = {row.lineage: (old, row) for old in past for row in old.ledger.finished()}
    cut = {row.lineage: (old, row) for old in past for row in old.ledger.cut() if row.lineage not in finished}
    kept, resumed = [], []
    histories = {lineage: curve for old in past for lineage, curve in old.ledger.histories().items()}
    for lineage, (old, row) in sorted(finished.items()):
        if point := fitted(trained(old.spec, row.values), loaded.spec, loaded.space):
            ledger.adopt(row, point, histories[lineage])
            kept.append(lineage)
    for lineage, (old, cut_row) in sorted(cut.items()):
        if point := fitted(trained(old.spec, cut_row.values), loaded.spec, loaded.space):
            ledger.continue_cut(cut_row, point)
            resumed.append(lineage)
    return Carried(
        changes=tuple(_changes(past[-1].spec, loaded.spec)),
        kept=tuple(kept),
        resumed=tuple(resumed),
        left=tuple(sorted(finished.keys() - kept)),
        abandoned=tuple(sorted(cut.keys() - resumed)),
    )


def _changes(old: StudySpec, new: StudySpec) -> list[str]:
    searched = {*old.search, *new.search}
    changed = [change for change in differences(old, new) if change[0].removeprefix("search.") in searched]
    return [f"{key}: {_entry(before)} -> {_entry(after)}" for key, before, after in changed]


def _entry(value: Any) -> str:
    """An entry of `search` as a user writes it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {part}' for key, part in value.items())}}}"
    return "not searched" if value is None else str(value)


def _same_search(old: StudySpec, new: StudySpec) -> bool:
    """Whether trials of both are points of one space: a conditional key's own value counts wherever it is not searched."""
    conditional = {name for name, entry in old.search.items() if entry.when}
    return old.search == new.search and not _moved(old, new, conditional) and not _moved_baseline(old, new)


def _moved_baseline(old: StudySpec, new: StudySpec) -> bool:
    return _moved(old, new, {name for name in (*old.search, *new.search) if not name.startswith("see.")})


def _moved(old: StudySpec, new: StudySpec, names: set[str]) -> bool:
    """Whether the file's own value of one of these keys has changed."""
    return any(read(trial_values(old), name) != read(trial_values(new), name) for name in names)


def _baseline(specs: Sequence[StudySpec]) -> str:
    """The lineage of the SEE-off row beside the last of these specs: a new one where its own values have moved."""
    moved = [number for number, (old, new) in enumerate(pairwise(specs), start=2) if _moved_baseline(old, new)]
    return f"baseline-g{moved[-1]}" if moved else "baseline"


# Warm start


def _comparable(name: str, loaded: Loaded, home: Home) -> dict[Side, list[Generation]]:
    """The generations of a study whose trials mean the same as those of `loaded`, and of its search with SEE off; read only."""
    folder, key = home.study(name), f"warm_start: [{name}]"
    if name == loaded.spec.study:
        raise StudyError(f"{key}: a study knows its own trials; name another, or leave it out")
    address = stored_address(folder, name)
    if address is None:
        raise StudyError(f"{key}: there is no such study in {home.root}; those that are there: {home.command('list')}")
    storage = view_storage(folder, address)
    sides: dict[Side, list[Generation]] = {
        "see": _recorded(storage, address.name),
        "off": _recorded(storage, f"{address.name}/off"),
    }
    for generation in sides["see"]:
        changes = identity_differences(generation.spec, loaded.spec)
        if changed := [f"  - {key}: {old!r}, here {new!r}" for key, old, new in changes if not key.startswith("pruner.")]:
            lines = "\n".join(changed)
            raise StudyError(f"{key}: its trials were trained under other settings:\n{lines}\nmake them equal, or leave it out")
    return sides


def _recorded(storage: Storage, name: str) -> list[Generation]:
    ledgers = (read_ledger(storage, study) for study in studies_of(storage, name))
    return [Generation(parse_study(ledger.spec_text, name).spec, ledger) for ledger in ledgers if ledger.spec_text]


def _learn(generations: Sequence[Generation], name: str, ledger: Ledger, loaded: Loaded) -> int:
    """Tell the sampler of another study's completed and pruned trials that fit; returns how many do."""
    fitting: set[str] = set()
    for generation in reversed(generations):
        histories = generation.ledger.histories()
        for row in generation.ledger.finished():
            if row.result.status == "failed" or row.lineage in fitting:
                continue
            point = fitted(trained(generation.spec, row.values), loaded.spec, loaded.space)
            if point:
                fitting.add(row.lineage)
                ledger.learn(row, point, histories[row.lineage], origin=f"{name} {row.lineage}")
    return len(fitting)
