"""A study from its YAML to its champion: the rooms put together.

    load -> Ray -> start.py: preflight -> lock
                -> session.py: [search -> re-rank -> final] -> answer -> registration -> summary.json

Killed anywhere, the same call goes on from the ledgers and the checkpoints. Ray takes seconds to start and mostly waits, so it
does that beside everything else: what is needed before is imported here, and what comes after it once it is starting.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from see_tune.errors import SpecError, StudyError
from see_tune.home import Home, find_home
from see_tune.imports import quick_imports
from see_tune.results import StudyResult
from see_tune.search.board import Watcher
from see_tune.search.engine import Engine, join_cluster
from see_tune.search.nodes import Node, this_machine, wait_for_nodes
from see_tune.spec.load import Loaded, load_study
from see_tune.studies import Until, begun_study, finished_note, set_aside, settled

_NODES_S = 180.0  # after its head came back, a cluster's workers are late


def run_study(
    file: str | Path,
    *,
    home: str | Path | None = None,
    overrides: Sequence[str] = (),
    until: Until = "final",
    fresh: bool = False,
    address: str | None = None,
    watcher: Watcher | None = None,
) -> StudyResult:
    """Run the study of a YAML file, or continue it, and return its answer.

    file: a study's YAML (``search_spaces/cars.yaml``).
    home: the folder for everything written; default SEE_TUNE_HOME, then ``./runs``.
    overrides: ``key=value`` assignments over the file, as ``--set``.
    until: "search" ends before the final phase.
    fresh: set an earlier study of this name aside, and begin anew.
    address: of a Ray cluster to run the trials on (``auto`` or ``host:port``); None: this machine alone.
    watcher: told of every row and epoch.

    Ctrl-C and SIGTERM stop it as they stop the command where it is called in the main thread; in another one it hears neither.

    Raises:
        SpecError, DatasetError, WeightsError, StudyError: the user's input is wrong; nothing was started.
        StudyFailedError: no trial completed.
    """
    if not isinstance(file, str | os.PathLike):
        raise SpecError(
            f"run_study was given a {type(file).__name__}; it takes the path of a study's YAML, as "
            "run_study('search_spaces/cub.yaml'); single keys are changed by overrides=['train.epochs=2']"
        )
    loaded = load_study(Path(file), overrides=overrides)
    at_home, watcher = find_home(Path(home) if home else None), watcher or Watcher()
    if fresh and (folder := at_home.study(loaded.spec.study)).root.is_dir():
        watcher.note(f"set aside: {set_aside(folder)}")
    if (stored := settled(loaded, at_home, until)) is not None:
        watcher.note(finished_note(stored))
        return stored
    return run_loaded(loaded, at_home, until=until, address=address, watcher=watcher)


def finish_study(name: str, home: Home, *, watcher: Watcher, address: str | None = None) -> StudyResult:
    """The final phase of a study of this home, from what its search has found so far.

    Raises: StudyError where there is no such study, or it has no final phase. Otherwise as `run_study`.
    """
    loaded = begun_study(home, name)
    if loaded.spec.final is None:
        raise StudyError(
            f"the study {name} was begun with final: none; give it a final phase: "
            f"{home.command('run', str(home.study(name).spec_file), '--set', 'final.seeds=5')}"
        )
    return run_loaded(loaded, home, until="final", extend=False, address=address, watcher=watcher)


def run_loaded(
    loaded: Loaded, home: Home, *, until: Until, watcher: Watcher, extend: bool = True, address: str | None = None
) -> StudyResult:
    """`run_study` for a study that has been loaded already and is not finished.

    extend: False leaves the search as it stands.
    """
    if address is not None:
        with join_cluster(address):
            return _run_on(wait_for_nodes(_NODES_S), None, loaded, home, until, watcher, extend=extend)
    here = this_machine()
    with Engine(cpus=here.cpus, gpus=here.gpus) as engine:
        try:
            return _run_on((here,), engine, loaded, home, until, watcher, extend=extend)
        except KeyboardInterrupt:
            if engine.starting:
                watcher.note("stopping, when Ray has ended its start. Ctrl-C once more: at once")
            raise


def _run_on(
    nodes: Sequence[Node], engine: Engine | None, loaded: Loaded, home: Home, until: Until, watcher: Watcher, *, extend: bool
) -> StudyResult:
    with quick_imports():
        from see_tune.start import run_session
    return run_session(nodes, engine, loaded, home, until, watcher, extend=extend)
