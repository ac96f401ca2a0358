"""A node of a cluster is killed and another one joins: rows go on elsewhere, each lineage once, at the cost of an epoch."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from see_tune.errors import StudyError
from see_tune.home import Home
from see_tune.node_checks import check_nodes
from see_tune.results import EpochResult, TrialResult
from see_tune.search.desk import Desk, DeskListener, Phase, Stream, Work
from see_tune.search.engine import join_cluster
from see_tune.search.ledger import open_search_ledger
from see_tune.search.nodes import Node, Watch, alive_nodes, count_slots, has_left, run_on_each, share_out
from see_tune.search.rows import FinishedRow
from see_tune.search.runner import run
from see_tune.spec.models import DatasetSpec, PrunerSpec, ResourcesSpec, SamplerSpec, TrialSpec
from see_tune.spec.space import FloatRange, Parameter, Space

TRIALS, EPOCHS, EPOCH_S = 5, 5, 2.0  # a trial is longer than the start of an actor, so that a node that joins gets one


class Stranger(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what the test hears on stderr is Ray's."""


def node_id() -> str:
    import ray  # which reads its settings when it is imported; see_tune.search has set them by now

    here: str = ray.get_runtime_context().get_node_id()
    return here


def work(spec: TrialSpec, *, folder: Path, on_epoch: Callable[[EpochResult, Path | None], None]) -> TrialResult:
    """A trainer with a checkpoint: goes on after the last epoch that it kept, and notes each that it trains."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "kept.json"
    history = [EpochResult.from_json(text) for text in json.loads(kept.read_text())] if kept.is_file() else []
    for result in history:
        on_epoch(result, folder)
    for number in range(len(history) + 1, EPOCHS + 1):
        time.sleep(EPOCH_S)
        history.append(EpochResult(number, {"val/recall_at_1": 0.1 * number}, time.time(), EPOCH_S))
        (folder / "new.json").write_text(json.dumps([result.to_json() for result in history]))
        (folder / "new.json").replace(kept)
        with (folder / "trained").open("a") as log:
            log.write(f"{number} {node_id()}\n")
        on_epoch(history[-1], folder)
    return TrialResult("complete", tuple(history), EPOCHS, 0.1 * EPOCHS)


def which_node(node: Node) -> tuple[str, str]:
    return node.id, node_id()


@dataclass
class Fault(DeskListener):
    """Kills a node with a few epochs in it, and adds another."""

    cluster: Any
    node: Any
    epochs: int = 0
    joined: str = ""

    def on_epoch(self, work: Work, result: EpochResult) -> None:
        self.epochs += work.node == self.node.node_id
        if self.epochs == 3 and not self.joined:
            self.cluster.remove_node(self.node, allow_graceful=False)
            self.joined = self.cluster.add_node(num_cpus=2).node_id


@dataclass
class Outcome:
    """What the session below left. trained: lineage -> (epoch, node) in the order of training."""

    rows: tuple[FinishedRow, ...]
    trained: dict[str, list[tuple[int, str]]]
    first: list[Any]
    joined: str
    seen: dict[Node, Any]
    problems: list[str]
    slots: list[int]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    first = [cluster.add_node(num_cpus=1) for _ in range(2)]
    space = Space((Parameter("see.lambda", FloatRange(0.0, 1.0)),), {})
    ledger = open_search_ledger(
        f"sqlite:///{folder}/optuna.db", "s", space, sampler=SamplerSpec(), pruner=PrunerSpec(name="none"), grace_epochs=1
    )
    stream = Stream(ledger, lambda row: TrialSpec(dataset=DatasetSpec(name="glyphs")), lambda: ledger.started() < TRIALS)
    fault = Fault(cluster, first[1])

    try:
        with join_cluster(cluster.address):
            seen = run_on_each(alive_nodes(), which_node, timeout_s=60)
            trial = TrialSpec(dataset=DatasetSpec(name="glyphs", classes=8))
            asked = {node.host: has_left(node.id) for node in alive_nodes()}
            assert set(asked.values()) == {False}
            problems = [str(problem) for problem in check_nodes(alive_nodes(), trial, Home(folder / "home"))]
            wanted = ResourcesSpec(cpus=1)
            resources, watch, slots = share_out(wanted, alive_nodes()), Watch(), []

            def count() -> int:
                slots.append(count_slots(wanted, watch.nodes(), resources.cpus, resources.gpus))
                return slots[-1]

            desk = Desk(
                iter([Phase("search", [stream])]),
                slots=resources.slots,
                retries=0,
                listeners=[fault],
                folder_of=lambda lineage: folder / "trials" / lineage,
                has_left=has_left,
            )
            run(desk, work, resources, results_folder=folder / "ray", count_slots=count)
        yield Outcome(ledger.finished(), trained(folder), first, fault.joined, seen, problems, slots)
    finally:
        cluster.shutdown()


def trained(folder: Path) -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    for file in (folder / "trials").glob("*/trained"):
        lines = [line.split() for line in file.read_text().splitlines()]
        found[file.parent.name] = [(int(epoch), node) for epoch, node in lines]
    return found


def test_every_row_ends_complete_once(outcome: Outcome) -> None:
    assert [row.lineage for row in outcome.rows] == [f"t{number:03d}" for number in range(TRIALS)]
    assert [row.result.status for row in outcome.rows] == ["complete"] * TRIALS


def test_a_lost_node_costs_at_most_the_epoch_it_was_in(outcome: Outcome) -> None:
    for lineage, lines in outcome.trained.items():
        epochs = Counter(epoch for epoch, _ in lines)
        assert set(epochs) == set(range(1, EPOCHS + 1)), lineage
        assert sum(epochs.values()) <= EPOCHS + 1, lineage


def test_a_row_of_the_lost_node_went_on_elsewhere(outcome: Outcome) -> None:
    lost = outcome.first[1].node_id
    moved = [lines for lines in outcome.trained.values() if lines[0][1] == lost and lines[-1][1] != lost]
    assert len(moved) == 1


def test_node_that_joins_gets_rows(outcome: Outcome) -> None:
    assert outcome.joined in {node for lines in outcome.trained.values() for _, node in lines}
    assert outcome.slots[0] == 2
    assert outcome.slots[-1] == 3


def test_function_is_run_on_each_node_itself(outcome: Outcome) -> None:
    assert len(outcome.seen) == 3
    assert all(node.id == asked == ran for node, (asked, ran) in outcome.seen.items())
    assert sorted(node.cpus for node in outcome.seen) == [0, 1, 1]


def test_nodes_that_share_the_drivers_folders_pass_its_checks(outcome: Outcome) -> None:
    assert outcome.problems == []


@pytest.fixture
def stranger() -> Iterator[str]:
    """The address of a server that is no Ray: of HTTP/1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_address_of_something_else_is_a_users_mistake_said_within_seconds(
    stranger: str, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    with pytest.raises(StudyError, match=f"--address {stranger}: .*what listens there is something else"), join_cluster(stranger):
        pass
    with pytest.raises(StudyError, match="'nonsense' is no HOST:PORT"), join_cluster("nonsense"):
        pass
    assert time.monotonic() - start < 5
    assert capfd.readouterr().err == ""


def test_address_where_nothing_listens_is_a_users_mistake() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = time.monotonic()
    address = f"127.0.0.1:{port}"
    with pytest.raises(StudyError, match=f"--address {address}: no Ray cluster.*refused"), join_cluster(address):
        pass
    with pytest.raises(StudyError, match="Ray client"), join_cluster("ray://127.0.0.1:10001"):
        pass
    assert time.monotonic() - start < 10
