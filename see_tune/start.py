"""How a session of a study begins, while Ray starts: everything that can be known is checked, and the study is locked.

    preflight -> lock -> session.py

`see-tune run --dry-run` asks the same, and starts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from see_tune.checks import DatasetFacts, preflight
from see_tune.errors import SeeTuneError
from see_tune.holding import held
from see_tune.home import Home
from see_tune.node_checks import check_nodes
from see_tune.results import StudyResult
from see_tune.search.board import Watcher
from see_tune.search.engine import Engine
from see_tune.search.generations import check_storage, check_warm_start
from see_tune.search.nodes import Node, Resources, check_cores, share_out, this_machine
from see_tune.session import Session
from see_tune.spec.load import Loaded, trial_values
from see_tune.spec.models import StudySpec
from see_tune.studies import Until, changed_settings, frozen, refuse_changed


def run_session(
    nodes: Sequence[Node], engine: Engine | None, loaded: Loaded, home: Home, until: Until, watcher: Watcher, *, extend: bool
) -> StudyResult:
    """One session of a study, from the preflight to its answer.

    nodes: the machines that its trials run on. engine: a Ray of its own, which may be starting yet; None on a cluster.

    Raises: as `see_tune.study.run_study`.
    """
    folder, trial = home.study(loaded.spec.study), trial_values(loaded.spec)
    facts = preflight(
        loaded.spec,
        trial,
        home,
        gpus={node.host: node.gpus for node in nodes},
        elsewhere=lambda: [
            *_around_the_trials(loaded, home, nodes),
            *(check_nodes(nodes, trial, home) if engine is None else ()),
        ],
        progress=watcher.decoding,
    )
    for note in facts.notes:
        watcher.note(f"note: {note}")
    folder.make()
    with held(folder):
        if folder.spec_file.is_file():
            before = frozen(folder).spec
            refuse_changed(before, loaded.spec)
            for line in changed_settings(before, loaded.spec):
                watcher.note(line)
        return Session(loaded, home, folder, facts, nodes, engine, until, watcher, extend=extend).run()


def check_start(loaded: Loaded, home: Home) -> DatasetFacts:
    """What can be known, with nothing started and nothing left behind, of `run_loaded` on this machine.

    Raises: UserError with everything that it would refuse.
    """
    here = (this_machine(),)
    return preflight(
        loaded.spec,
        trial_values(loaded.spec),
        home,
        elsewhere=lambda: _around_the_trials(loaded, home, here),
        thorough=False,
    )


def _around_the_trials(loaded: Loaded, home: Home, nodes: Sequence[Node]) -> list[SeeTuneError]:
    """What is wrong with where the trials run and lie, and with those they are to learn from."""
    folder = home.study(loaded.spec.study)
    return [
        *check_cores(loaded.spec.resources, nodes),
        *check_storage(folder, loaded.spec),
        *check_warm_start(loaded, home),
    ]


def plan_resources(spec: StudySpec) -> Resources:
    """What a trial gets on this machine."""
    return share_out(spec.resources, (this_machine(),))
