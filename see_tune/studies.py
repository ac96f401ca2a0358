"""The studies of a home as they lie on disk: which there are, who runs one, what it answered, whether a file continues it.

All that can be said of a study before an engine is started, and so without one: this module imports neither torch nor Ray nor
MLflow, and what it refuses or knows already is on the terminal at once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import filelock

from see_tune.errors import StudyError
from see_tune.home import Home, StudyFolder
from see_tune.results import StudyResult
from see_tune.spec.load import Loaded, identity_differences, parse_study
from see_tune.spec.models import StudySpec

Until = Literal["search", "final"]

_PATIENCE_S = 0.5  # longer than another process takes to look whether the lock is held


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
    """The summary that the study's last session left, if there is one."""
    if not folder.summary_file.is_file():
        return None
    return StudyResult.from_json(folder.summary_file.read_text())


def settled(loaded: Loaded, home: Home, until: Until, *, extend: bool = True) -> StudyResult | None:
    """The stored answer, where this file asks for nothing more; None where there is something to run.

    extend: whether a budget that the search has not used up yet is something to run.

    Raises: StudyError where another process runs the study, or it was begun under other settings than the file's.
    """
    folder = home.study(loaded.spec.study)
    if not folder.spec_file.is_file():
        return None
    if (holder := holder_of(folder)) is not None:
        raise _running_already(folder, holder)
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


def finished_note(stored: StudyResult) -> str:
    """What is said instead of running a finished study again."""
    finished = f"{stored.study} is finished: {stored.trials} trials"
    match stored.search_ended:
        case "exhausted":
            return f"{finished}, and its search space is exhausted: --trials adds none. More points: widen `search` in the file"
        case "hours" | "device_hours" as limit:
            return f"{finished}, and budget.{limit} is used up. More of the same search: --set budget.{limit}=MORE"
        case _:
            return f"{finished}. More of the same search: --trials {2 * stored.trials}"


def set_aside(folder: StudyFolder) -> Path:
    """Rename a study's folder, so that its name is free; nothing in it is lost.

    Raises: StudyError while a process runs the study.
    """
    with held(folder):
        aside = folder.root.with_name(f"{folder.root.name}.{time.strftime('%Y%m%d-%H%M%S')}")
        if aside.exists():
            raise StudyError(f"{aside} exists already; a study is set aside once a second at most: try again")
        folder.root.rename(aside)
    (aside / _holder_file(folder).name).unlink(missing_ok=True)
    return aside


# Who runs a study


@dataclass(frozen=True)
class Holder:
    """The process that runs a study. started_at: Unix time in seconds."""

    pid: int
    host: str
    started_at: float

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


@contextmanager
def held(folder: StudyFolder) -> Iterator[None]:
    """One driver a study: the lock dies with its process, so a stale one needs no sweeping.

    Raises: StudyError that names the process which holds it.
    """
    lock = filelock.FileLock(folder.lock_file)
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except filelock.Timeout:
        raise _running_already(folder, _read_holder(folder)) from None
    holder = Holder(os.getpid(), socket.gethostname(), time.time())
    try:
        _holder_file(folder).write_text(json.dumps(asdict(holder)))
        yield
    finally:
        _holder_file(folder).unlink(missing_ok=True)
        lock.release()


def _running_already(folder: StudyFolder, holder: Holder | None) -> StudyError:
    name, who = folder.root.name, holder or "another process"
    return StudyError(
        f"the study {name} is running already ({who}); look at it: see-tune status {name}, end it: see-tune stop {name}, "
        f"or choose another name with --name"
    )


def holder_of(folder: StudyFolder) -> Holder | None:
    """The process that runs the study now; None where nobody does, whatever a dead process has left."""
    return _read_holder(folder) if _is_held(folder) else None


def _is_held(folder: StudyFolder) -> bool:
    if not folder.lock_file.is_file():
        return False
    lock = filelock.FileLock(folder.lock_file, is_singleton=False)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return True
    lock.release()
    return False


def _holder_file(folder: StudyFolder) -> Path:
    return folder.lock_file.with_suffix(".holder")


def _read_holder(folder: StudyFolder) -> Holder | None:
    try:
        return Holder(**json.loads(_holder_file(folder).read_text()))
    except (OSError, ValueError, TypeError):  # not written yet, or half of it
        return None


def ask_to_stop(folder: StudyFolder) -> Holder:
    """SIGTERM to the process that runs the study: its trials go back into the queue, and it ends.

    Raises: StudyError where nobody runs it, or a process of another host does.
    """
    name, holder = folder.root.name, holder_of(folder)
    if holder is None:
        raise StudyError(f"the study {name} is not running; `see-tune status {name}` says how it stands")
    if holder.host != socket.gethostname():
        raise StudyError(
            f"the study {name} runs on another host ({holder}), and signals do not travel; there: see-tune stop {name}"
        )
    os.kill(holder.pid, signal.SIGTERM)
    return holder


def wait_until_free(folder: StudyFolder, holder: Holder, poll_s: float = 0.2) -> None:
    """Return when `holder` runs the study no longer."""
    while holder_of(folder) == holder:
        time.sleep(poll_s)
