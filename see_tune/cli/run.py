"""`see-tune run FILE`: a study from its YAML to its champion; the same command continues it."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from see_tune.cli.options import AsJson, HomeFolder, Overrides, StudyFile

if TYPE_CHECKING:
    from see_tune.spec.load import Loaded

_SMOKE = ("budget.trials=2", "train.epochs=2", "validation.rerank_top=0", "pruner.name=none")


def run(
    file: StudyFile,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Search trials in total; extends a finished study.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Another name for the study.")] = None,
    home: HomeFolder = None,
    set_: Overrides = None,
    until: Annotated[str, typer.Option("--until", help="search: end before the final phase.")] = "final",
    smoke: Annotated[bool, typer.Option("--smoke", help="2 trials of 2 epochs in a throw-away study.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and start nothing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run a study: search, retrain the best, meet the test classes once, register the champion."""
    from see_tune.home import find_home
    from see_tune.spec.load import load_study

    if until not in ("search", "final"):
        raise typer.BadParameter(f"{until!r} is neither search nor final", param_hint="--until")
    overrides = [*(set_ or []), *([f"study={name}"] if name else []), *([f"budget.trials={trials}"] if trials else [])]
    loaded = load_study(file, overrides=[*overrides, *(_SMOKE if smoke else ())])
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if dry_run:
        from see_tune.cli.plan import print_plan

        print_plan(loaded, find_home(home), until, as_json=as_json)
        return 0
    if smoke:
        with tempfile.TemporaryDirectory(prefix="see-tune-smoke-") as throw_away:
            return _run(loaded, Path(throw_away), until, as_json=as_json)
    return _run(loaded, find_home(home).root, until, as_json=as_json)


def _run(loaded: Loaded, home: Path, until: str, *, as_json: bool) -> int:
    from see_tune.cli.progress import choose_watcher
    from see_tune.cli.show import print_result
    from see_tune.home import Home
    from see_tune.study import run_loaded

    result = run_loaded(loaded, Home(home), until="search" if until == "search" else "final", watcher=choose_watcher(as_json))
    if as_json:
        print(json.dumps(json.loads(result.to_json()), indent=2))
    else:
        print_result(result)
    if result.status == "interrupted":
        print(f"interrupted; the same command continues: {result.commands['continue']}", file=sys.stderr)
        return 130
    return 0
