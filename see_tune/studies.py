"""The studies of a home as they lie on disk: which there are, what each answered, whether a file continues it.

All that can be said of a study before an engine is started, and so without one: this module imports neither torch nor Ray nor
MLflow, and what it refuses or knows already is on the terminal at once.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

from see_tune.errors import StudyError
from see_tune.holding import held, holder_of, running_already
from see_tune.home import Home, StudyFolder
from see_tune.looks import count_set_aside, read_looks
from see_tune.results import StudyResult
from see_tune.spec.load import Loaded, differences, identity_differences, parse_study
from see_tune.spec.models import StudySpec
from see_tune.wording import counted

Until = Literal["search", "final"]


def study_names(home: Home) -> tuple[str, ...]:
    """Every study of the home, by name."""
    return tuple(sorted(file.parent.name for file in (home.root / "studies").glob("*/study.yaml")))


def existing_study(home: Home, name: str) -> StudyFolder:
    """The folder of a study that was begun.

    Raises: StudyError with the names that there are.
    """
    folder = home.study(name)
    if not folder.spec_file.is_file():
        known = ", ".join(study_names(home)) or "none yet; begin one: see-tune run search_spaces/glyphs.yaml"
        raise StudyError(f"there is no study {name!r} in {home.root}; there: {known}. Another home: --home DIR")
    return folder


def frozen(folder: StudyFolder) -> Loaded:
    """The study as its last session was started, `--set` and the rest included."""
    return parse_study(folder.spec_file.read_text(), str(folder.spec_file))


def begun_study(home: Home, name: str) -> Loaded:
    """A study of this home by its name, ready to go on.

    Raises: StudyError where there is none, or it was set aside.
    """
    folder = existing_study(home, name)
    loaded = frozen(folder)
    if loaded.spec.study != name:
        raise StudyError(
            f"{name} is an earlier study {loaded.spec.study} that was set aside; to go on with it, rename {folder.root} "
            f"to {loaded.spec.study}, in place of the one that is there now"
        )
    return loaded


def stored_result(folder: StudyFolder) -> StudyResult | None:
    """The summary that the study's last session left, if there is one, with the looks at its test classes up to now."""
    if not folder.summary_file.is_file():
        return None
    stored = StudyResult.from_json(folder.summary_file.read_text())
    if stored.test_looks and stored.test_looks.fingerprint:
        return replace(stored, test_looks=read_looks(folder.home, stored.test_looks.fingerprint))
    return stored


def settled(loaded: Loaded, home: Home, until: Until, *, extend: bool = True) -> StudyResult | None:
    """The stored answer, where this file asks for nothing more; None where there is something to run.

    extend: whether a budget that the search has not used up yet is something to run.

    Raises: StudyError where another process runs the study, or it was begun under other settings than the file's.
    """
    folder = home.study(loaded.spec.study)
    if not folder.spec_file.is_file():
        return None
    if (holder := holder_of(folder)) is not None:
        raise running_already(folder, holder)
    before = frozen(folder).spec
    refuse_changed(before, loaded.spec)
    stored = stored_result(folder)
    if stored is None or before.search != loaded.spec.search or stored.status != "done" or stored.undelivered:
        return None
    searched = not extend or stored.trials >= loaded.spec.budget.trials or _has_ended(stored, before, loaded.spec)
    final = loaded.spec.final if until == "final" else None
    finals = final.seeds if final else 0
    if (
        final
        and before.final
        and (before.searches_baseline, final.baseline) != (loaded.spec.searches_baseline, before.final.baseline)
    ):
        return None
    tested = not finals or (stored.see is not None and len(stored.see.seeds) >= finals)
    return stored if searched and tested and not _failed_beside_the_search(stored, until) else None


def _failed_beside_the_search(stored: StudyResult, until: Until) -> bool:
    """Whether a baseline, re-ranking or final run has failed, which the next session tries again."""
    phases = ("baseline", "rerank", "final") if until == "final" else ("baseline",)
    return any(lineage.startswith(phases) for lineage in stored.failures)


def _has_ended(stored: StudyResult, before: StudySpec, spec: StudySpec) -> bool:
    """Whether what ended the search before its last trial ends it still."""
    match stored.search_ended:
        case "exhausted":
            return (before.sampler, before.start_with) == (spec.sampler, spec.start_with)
        case "hours" | "device_hours":
            return before.budget.model_dump(exclude={"trials"}) == spec.budget.model_dump(exclude={"trials"})
        case _:
            return False


def refuse_changed(before: StudySpec, spec: StudySpec) -> None:
    """A study goes on under the settings it began with; its search space alone may change.

    Its dataset's title decides no number, but its runs are tracked under it.

    Raises: StudyError with each key that differs, and the ways out.
    """
    changed = identity_differences(before, spec)
    if changed:
        lines = "\n".join(f"  - {key}: {old!r} -> {new!r}" for key, old, new in changed)
        raise StudyError(
            f"the study {spec.study} was begun with other settings, and its trials would not be comparable:\n{lines}\n"
            f"undo the change, give the new study a name of its own (--name {spec.study}-2), "
            f"or set the old one aside and begin anew (--fresh)"
        )
    if before.dataset.called != spec.dataset.called:
        raise StudyError(
            f"the study {spec.study} was begun with a dataset called {before.dataset.called}, under which its runs are tracked, "
            f"and dataset.title calls it {spec.dataset.called} now: undo the change, or give the new study a name of its own "
            f"(--name {spec.study}-2); warm_start: [{spec.study}] takes the trials over"
        )


def changed_settings(before: StudySpec, spec: StudySpec) -> list[str]:
    """What has changed since a study was begun, but for the search space, which is told of when its trials are sorted."""
    searched = {f"search.{name}" for name in (*before.search, *spec.search)} | {*before.search, *spec.search}
    changed = [change for change in differences(before, spec) if change[0] not in searched]
    return ["changed since the last session:", *(f"  {key}: {old} -> {new}" for key, old, new in changed)] if changed else []


def finished_note(stored: StudyResult) -> str:
    """What is said instead of running a finished study again."""
    finished = f"{stored.study} is finished: {counted(stored.trials, 'trial')}"
    match stored.search_ended:
        case "exhausted":
            return f"{finished}, and its search space is exhausted: --trials adds none. More points: widen `search` in the file"
        case "hours" | "device_hours" as limit:
            return (
                f"{finished}, and budget.{limit} is used up. More of the same search: see-tune run FILE --set budget.{limit}=MORE"
            )
        case _:
            return f"{finished}. More of the same search: see-tune run FILE --trials {2 * stored.trials}, the number in all"


def set_aside(folder: StudyFolder) -> Path:
    """Rename a study's folder, so that its name is free; nothing in it is lost.

    Raises: StudyError while a process runs the study.
    """
    with held(folder):
        aside = folder.root.with_name(f"{folder.root.name}.{time.strftime('%Y%m%d-%H%M%S')}")
        if aside.exists():
            raise StudyError(f"{aside} exists already; a study is set aside once a second at most: try again")
        folder.root.rename(aside)
        count_set_aside(folder.home, folder.root.name)
    for mark in ("lock.holder", "lock.tmp"):
        (aside / mark).unlink(missing_ok=True)
    return aside
