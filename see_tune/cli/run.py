"""`see-tune run FILE`: a study from its YAML to its champion; the same command continues it."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from see_tune.cli.options import Address, AsJson, HomeFolder, Overrides, StudyFile

if TYPE_CHECKING:
    from see_tune.home import Home
    from see_tune.results import StudyResult
    from see_tune.spec.load import Loaded

_SMOKE = ("budget.trials=2", "train.epochs=2", "pruner.name=none", "final=none", "tracking.uri=local", "storage=journal")


def run(
    file: StudyFile,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Search trials in total; extends a finished study.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Another name for the study.")] = None,
    home: HomeFolder = None,
    set_: Overrides = None,
    until: Annotated[str, typer.Option("--until", help="search: end before the final phase.")] = "final",
    fresh: Annotated[bool, typer.Option("--fresh", help="Set an earlier study of this name aside, and begin anew.")] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="2 trials of 2 epochs in a throw-away study.")] = False,
    address: Address = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and start nothing.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="With --dry-run: train one epoch of trial 0, and say how long the study takes.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Run a study: search, retrain the best, meet the test classes once, register the champion."""
    from see_tune.home import find_home
    from see_tune.spec.load import load_study

    if until not in ("search", "final"):
        raise typer.BadParameter(f"{until!r} is neither search nor final", param_hint="--until")
    if measure and not dry_run:
        raise typer.BadParameter("it belongs to --dry-run: see-tune run FILE --dry-run --measure", param_hint="--measure")
    loaded = load_study(file, overrides=[*overridden(set_, name, trials), *(_SMOKE if smoke else ())])
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if dry_run:
        from see_tune.cli.plan import print_plan

        print_plan(loaded, find_home(home), until, as_json=as_json, measure=measure)
        return 0
    if smoke:
        return _smoke(loaded, find_home(home), address, as_json=as_json)
    return _run(loaded, find_home(home), until, address, fresh=fresh, as_json=as_json)


def overridden(set_: list[str] | None, name: str | None, trials: int | None) -> list[str]:
    """The file's keys that the command line states, as `--set` would."""
    return [*(set_ or []), *([f"study={name}"] if name else []), *([f"budget.trials={trials}"] if trials else [])]


def _smoke(loaded: Loaded, home: Home, address: str | None, *, as_json: bool) -> int:
    """The study in a home of its own inside the real one, so that the same disk is tried, and nothing of it is left."""
    from see_tune.checks import unwritable
    from see_tune.home import find_home

    if (unfit := unwritable(home.root)) is not None:
        raise unfit
    home.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="smoke-", dir=home.root) as throw_away:
        code = _run(loaded, find_home(Path(throw_away)), "search", address, fresh=False, as_json=as_json)
    print("smoke: it runs; the throw-away study is gone", file=sys.stderr)
    return code


def _run(loaded: Loaded, home: Home, until: str, address: str | None, *, fresh: bool, as_json: bool) -> int:
    from see_tune.studies import finished_note, set_aside, settled

    upto: Literal["search", "final"] = "search" if until == "search" else "final"
    notes = sys.stderr if as_json else sys.stdout
    if fresh and (folder := home.study(loaded.spec.study)).root.is_dir():
        print(f"set aside: {set_aside(folder)}", file=notes, flush=True)
    if (stored := settled(loaded, home, upto)) is not None:  # before the engines are imported, which takes seconds
        print(finished_note(stored), file=notes)
        return show(stored, as_json=as_json)
    from see_tune.cli.progress import choose_watcher
    from see_tune.study import run_loaded

    return show(run_loaded(loaded, home, until=upto, address=address, watcher=choose_watcher(as_json)), as_json=as_json)


def show(result: StudyResult, *, as_json: bool) -> int:
    """Print an answer; returns the exit code."""
    from see_tune.cli.show import print_result

    if as_json:
        print(json.dumps(json.loads(result.to_json()), indent=2))
    else:
        print_result(result)
    return 130 if result.status == "interrupted" else 0
