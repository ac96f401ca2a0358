"""Nodes join a running study: one that is as the others gets rows, one that is not gets none and is named."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from see_tune.home import Home
from see_tune.node_checks import Gate
from see_tune.results import EpochResult, TrialResult
from see_tune.search.desk import Desk, DeskListener, Phase, Stream, Work
from see_tune.search.engine import join_cluster
from see_tune.search.ledger import open_search_ledger
from see_tune.search.nodes import alive_nodes, count_slots, share_out
from see_tune.search.rows import FinishedRow
from see_tune.search.runner import run
from see_tune.spec.models import DatasetSpec, PrunerSpec, ResourcesSpec, SamplerSpec, TrialSpec
from see_tune.spec.space import FloatRange, Parameter, Space

MOST_TRIALS = 12
TRIAL = TrialSpec(dataset=DatasetSpec(name="glyphs", classes=8))


def node_id() -> str:
    import ray  # which reads its settings when it is imported; see_tune.search has set them by now

    here: str = ray.get_runtime_context().get_node_id()
    return here


def work(spec: TrialSpec, *, folder: Path, on_epoch: Callable[[EpochResult, Path | None], None]) -> TrialResult:
    """A trial that says where it ran. Once nodes have joined, it waits for one on the good one of them."""
    good, used = folder.with_name("good"), folder.with_name("used")
    if good.is_file() and good.read_text() == node_id():
        used.touch()
    until = time.monotonic() + 60
    while good.is_file() and not used.exists() and time.monotonic() < until:
        time.sleep(0.2)
    result = EpochResult(1, {"val/recall_at_1": 0.5}, time.time(), 3.0)
    on_epoch(result, folder)
    return TrialResult("complete", (result,), 1, 0.5, facts={"node": node_id()})


@dataclass
class Joining(DeskListener):
    """At the first result, nodes join with room for more trials than there are: a good one last."""

    cluster: Any
    folder: Path
    good: str = ""
    bad: tuple[str, ...] = ()

    def on_end(self, work: Work, result: TrialResult) -> None:
        if not self.good:
            self.bad = (self.add(4, self.another_torch()).node_id, self.add(4, self.no_pillow()).node_id)
            self.good = self.add(1, None).node_id
            (self.folder / "trials").mkdir(exist_ok=True)
            (self.folder / "trials" / "good").write_text(self.good)

    def add(self, cpus: int, path: Path | None) -> Any:
        first = {"PYTHONPATH": f"{path}:{os.environ.get('PYTHONPATH', '')}"} if path else None
        return self.cluster.add_node(num_cpus=cpus, env_vars=first)

    def another_torch(self) -> Path:
        metadata = self.folder / "other" / "torch-1.0.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
        return metadata.parents[1]

    def no_pillow(self) -> Path:
        package = self.folder / "none" / "PIL" / "__init__.py"
        package.parent.mkdir(parents=True)
        package.write_text("raise ImportError('no pillow here')")
        return package.parents[1]


@dataclass(frozen=True)
class Outcome:
    """What the session below left."""

    rows: tuple[FinishedRow, ...]
    joining: Joining
    notes: list[str]
    slots: list[int]
    home: Home


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("cluster")
    home = Home(folder / "home")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    space = Space((Parameter("see.lambda", FloatRange(0.0, 1.0)),), {})
    ledger = open_search_ledger(
        f"sqlite:///{folder}/optuna.db", "s", space, sampler=SamplerSpec(), pruner=PrunerSpec(name="none"), grace_epochs=1
    )
    joining, notes, slots = Joining(cluster, folder), list[str](), list[int]()

    def may_start() -> bool:
        is_seen = len(notes) == 2 and (folder / "trials" / "used").exists()
        return not is_seen and ledger.started() < MOST_TRIALS

    try:
        with join_cluster(cluster.address):
            wanted, first = ResourcesSpec(cpus=1), alive_nodes()
            gate = Gate(first, TRIAL, home, notes.append)
            desk = Desk(
                iter([Phase("search", [Stream(ledger, lambda row: TRIAL, may_start)])]),
                slots=1,
                retries=0,
                listeners=[joining],
                folder_of=lambda lineage: folder / "trials" / lineage,
            )

            def count() -> int:
                nodes = gate.nodes()
                desk.nodes = frozenset(gate.admitted)
                desk.unfit = {node.id: why for node, why in gate.unfit.items()}
                slots.append(count_slots(wanted, nodes, 1, 0))
                return slots[-1]

            run(desk, work, share_out(wanted, first), results_folder=folder / "ray", count_slots=count)
            gate.close()
        yield Outcome(ledger.finished(), joining, notes, slots, home)
    finally:
        cluster.shutdown()


def test_unfit_nodes_get_no_rows_and_cost_none(outcome: Outcome) -> None:
    assert {row.result.status for row in outcome.rows} == {"complete"}
    assert not {row.result.facts["node"] for row in outcome.rows} & set(outcome.joining.bad)


def test_unfit_nodes_are_named_with_what_is_wrong_once(outcome: Outcome) -> None:
    version, package = sorted(outcome.notes, key=lambda note: "could not be looked at" in note)
    assert "joined and gets no trials: has torch 1.0 and the driver" in version
    assert "no pillow here" in package


def test_node_that_is_as_it_should_be_gets_rows(outcome: Outcome) -> None:
    assert outcome.joining.good in {row.result.facts["node"] for row in outcome.rows}
    assert (outcome.slots[0], outcome.slots[-1]) == (1, 2)


def test_looks_leave_nothing_in_the_home(outcome: Outcome) -> None:
    assert list(outcome.home.root.glob("seen-by-*")) == []
