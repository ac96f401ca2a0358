"""`see-tune run FILE`: a study from its YAML to its champion; the same command continues it."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from see_tune.cli.options import Address, AsJson, HomeFolder, Name, Overrides, StudyFile, Trials, Until

if TYPE_CHECKING:
    from see_tune.home import Home
    from see_tune.results import StudyResult
    from see_tune.spec.load import Flag, Loaded

_INTERRUPTED = 130
_SMOKE = (
    "budget.trials=2",
    "train.epochs=2",
    "pruner.name=none",
    "final=none",
    "warm_start=[]",
    "tracking.uri=local",
    "storage=journal",
)


def run(
    file: StudyFile,
    trials: Trials = None,
    name: Name = None,
    home: HomeFolder = None,
    set_: Overrides = None,
    until: Until = "final",
    fresh: Annotated[bool, typer.Option("--fresh", help="Set an earlier study of this name aside, and begin anew.")] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="2 trials of 2 epochs in a throw-away study.")] = False,
    address: Address = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and start nothing.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="With --dry-run: train one epoch of trial 0, and say how long the study takes.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Run a study from its search to a registered champion. The best is retrained and meets the test classes once; the same
    command continues what was cut."""
    from see_tune.home import find_home
    from see_tune.spec.load import load_study

    if measure and not dry_run:
        raise typer.BadParameter("it belongs to --dry-run: see-tune run FILE --dry-run --measure", param_hint="--measure")
    if dry_run and address is not None:
        raise typer.BadParameter(
            "a dry run joins no cluster and says what this machine would do; leave --address out", param_hint="--address"
        )
    if smoke and trials is not None:
        raise typer.BadParameter("--smoke runs 2 trials of 2 epochs; leave one of the two out", param_hint="--trials")
    loaded = load_study(file, overrides=[*overridden(set_, name, trials), *(_SMOKE if smoke else ())])
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if dry_run:
        from see_tune.cli.plan import print_plan

        print_plan(loaded, find_home(home), until, fresh=fresh, smoke=smoke, as_json=as_json, measure=measure)
        return 0
    if smoke:
        return _smoke(loaded, find_home(home), address, as_json=as_json)
    return _run(loaded, find_home(home), until, address, fresh=fresh, as_json=as_json)


def overridden(set_: list[str] | None, name: str | None, trials: int | None) -> list[str | Flag]:
    """The file's keys that the command line states."""
    from see_tune.spec.load import Flag

    flags = [("--name", "study", name), ("--trials", "budget.trials", trials)]
    return [*(set_ or []), *(Flag(option, key, value) for option, key, value in flags if value is not None)]


def _smoke(loaded: Loaded, home: Home, address: str | None, *, as_json: bool) -> int:
    """The study in a home of its own inside the real one, so that the same disk is tried, and nothing of it is left."""
    from see_tune.checks import unwritable
    from see_tune.cli.progress import choose_watcher
    from see_tune.cli.show import answer_lines
    from see_tune.errors import StudyFailedError
    from see_tune.home import find_home
    from see_tune.study import run_loaded

    if (unfit := unwritable(home.root)) is not None:
        raise unfit
    home.root.mkdir(parents=True, exist_ok=True)
    print("smoke: 2 trials of 2 epochs, without pruning and final phase, tracked in a throw-away folder", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="smoke-", dir=home.root) as folder:
        there = find_home(Path(folder))
        try:
            result = run_loaded(loaded, there, until="search", address=address, watcher=choose_watcher(as_json))
        except StudyFailedError as error:  # the copy that it advises to train is gone in a moment, and the file is not
            copy = there.study(loaded.spec.study).spec_file
            raise StudyFailedError(str(error).replace(str(copy), str(loaded.source))) from None
    if as_json:
        _print_json(replace(result, folder="", tracking="", commands={}))  # none of the places is there any more
    else:
        print(*answer_lines(result), sep="\n")
    interrupted = result.status == "interrupted"
    print(f"smoke: {'cut short' if interrupted else 'it runs'}; the throw-away study is gone", file=sys.stderr)
    return _INTERRUPTED if interrupted else 0


def _run(loaded: Loaded, home: Home, until: Until, address: str | None, *, fresh: bool, as_json: bool) -> int:
    from see_tune.imports import quick_imports
    from see_tune.studies import finished_note, set_aside, settled

    notes = sys.stderr if as_json else sys.stdout
    if fresh and (folder := home.study(loaded.spec.study)).root.is_dir():
        print(f"set aside: {set_aside(folder)}", file=notes, flush=True)
    if (stored := settled(loaded, home, until)) is not None:  # before the engines are imported, which takes seconds
        print(finished_note(stored), file=notes)
        return show(stored, as_json=as_json)
    with quick_imports():
        from see_tune.cli.progress import choose_watcher
        from see_tune.study import run_loaded

    return show(run_loaded(loaded, home, until=until, address=address, watcher=choose_watcher(as_json)), as_json=as_json)


def show(result: StudyResult, *, as_json: bool) -> int:
    """Print an answer; returns the exit code."""
    from see_tune.cli.show import print_result

    if as_json:
        _print_json(result)
    else:
        print_result(result)
    return _INTERRUPTED if result.status == "interrupted" else 0


def _print_json(result: StudyResult) -> None:
    print(json.dumps(json.loads(result.to_json()), indent=2))
