"""The machines that trials run on: this one, or the nodes of a cluster; how a study's trials share them out.

`run_on_each` runs a function on every node, whatever is free there: a check, a look at its disk.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from see_tune.errors import SpecError
from see_tune.machine import count_gpus
from see_tune.spec.models import ResourcesSpec
from see_tune.wording import counted

_MOST_SHARES = 4  # trials without a GPU share a machine's cores among at most so many
_LOOK_S = 2.0
_ANSWER_S = 10.0  # more than a busy node takes to start a worker


@dataclass(frozen=True)
class Node:
    """One machine of a cluster. id: Ray's; host: its name for people; cpus, gpus: what trials may have of it."""

    id: str
    host: str
    cpus: int
    gpus: int


@dataclass(frozen=True)
class Resources:
    """What one trial gets, and how many run side by side."""

    cpus: int
    gpus: float
    slots: int


def this_machine() -> Node:
    """This one, as far as this process may use it."""
    return Node("", socket.gethostname(), len(os.sched_getaffinity(0)), count_gpus())


def alive_nodes() -> tuple[Node, ...]:
    """The nodes of the cluster that this process is connected to; a head that takes no trials has 0 CPUs."""
    return tuple(
        Node(
            node["NodeID"],
            node["NodeManagerHostname"],
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    )


def share_out(wanted: ResourcesSpec, nodes: Sequence[Node]) -> Resources:
    """What each trial gets: a GPU where there are any, else up to four trials share a machine's cores.

    All trials get the same, so that the smallest machine that takes any decides how many cores that is.
    """
    gpus = float(min(1, max(node.gpus for node in nodes))) if wanted.gpus == "auto" else wanted.gpus
    able = [node for node in nodes if node.cpus and (node.gpus >= gpus > 0 or not gpus)]
    cpus = min((_cores_a_trial(wanted, node, gpus, len(able)) for node in able), default=1)
    return Resources(cpus, gpus, count_slots(wanted, nodes, cpus, gpus))


def check_cores(wanted: ResourcesSpec, nodes: Sequence[Node]) -> Iterator[SpecError]:
    """Why no node takes a trial of so many cores, which would wait for ever."""
    if wanted.cpus != "auto" and wanted.cpus > max(node.cpus for node in nodes):
        machines = ", ".join(f"{node.host} has {node.cpus}" for node in nodes)
        yield SpecError(
            f"resources.cpus: a trial asks for {counted(wanted.cpus, 'core')} and {machines}; set resources.cpus: auto, or fewer"
        )


def _cores_a_trial(wanted: ResourcesSpec, node: Node, gpus: float, nodes: int) -> int:
    if wanted.cpus != "auto":
        return wanted.cpus
    side_by_side = int(node.gpus / gpus) if gpus else min(node.cpus, _MOST_SHARES)
    if wanted.max_parallel:
        side_by_side = min(side_by_side, -(-wanted.max_parallel // nodes))
    return max(1, node.cpus // side_by_side)


def count_slots(wanted: ResourcesSpec, nodes: Sequence[Node], cpus: int, gpus: float) -> int:
    """How many trials of `cpus` and `gpus` run side by side on these nodes; at least one, which waits for a node to come."""
    fitting = sum(min(node.cpus // cpus, int(node.gpus / gpus)) if gpus else node.cpus // cpus for node in nodes)
    return max(1, min(fitting, wanted.max_parallel or fitting))


class Watch:
    """Which nodes a cluster has while a study runs on it."""

    def __init__(self) -> None:
        self._nodes = alive_nodes()
        self._looked_at = time.monotonic()

    def nodes(self) -> tuple[Node, ...]:
        """As of at most two seconds ago."""
        if time.monotonic() - self._looked_at > _LOOK_S:
            self._nodes, self._looked_at = alive_nodes(), time.monotonic()
        return self._nodes


def has_left(node_id: str) -> bool:
    """Whether this node is gone, or as good as gone.

    A worker's silence is heard before its node's death, which a cluster may take a minute to declare: so the node is asked.
    """
    asked = [node for node in alive_nodes() if node.id == node_id]
    answers = run_on_each(asked, _answer, timeout_s=_ANSWER_S)
    return any(isinstance(answer, Exception) for answer in answers.values()) or not asked


def _answer(node: Node) -> str:
    return node.id


def wait_for_nodes(patience_s: float) -> tuple[Node, ...]:
    """The cluster's nodes, as soon as one of them can take a trial; as they are after `patience_s` where none can."""
    until = time.monotonic() + patience_s
    while True:
        nodes = alive_nodes()
        if any(node.cpus for node in nodes) or time.monotonic() > until:
            return nodes
        time.sleep(0.5)


def run_on_each(nodes: Sequence[Node], function: Callable[..., Any], *arguments: Any, timeout_s: float) -> dict[Node, Any]:
    """What the function returns on each node, or the exception that it raised there; a TimeoutError after `timeout_s`.

    function: must be importable there; takes the node and the arguments.
    """
    asked = {node: Question(node, function, *arguments, timeout_s=timeout_s) for node in nodes}
    return {node: question.wait() for node, question in asked.items()}


class Question:
    """A function on its way to one node and back, as in `run_on_each`; whoever asked may do something else meanwhile."""

    def __init__(self, node: Node, function: Callable[..., Any], *arguments: Any, timeout_s: float) -> None:
        task = ray.remote(num_cpus=0, max_retries=0)(function)
        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        self._reference = task.options(scheduling_strategy=there).remote(node, *arguments)
        self._until = time.monotonic() + timeout_s

    def is_answered(self) -> bool:
        """Whether `wait` returns at once."""
        back, _ = ray.wait([self._reference], timeout=0)
        return bool(back) or time.monotonic() > self._until

    def wait(self) -> Any:
        """What the function returns, or the exception that it raised there; a TimeoutError when its time is up."""
        try:
            return ray.get(self._reference, timeout=max(0.0, self._until - time.monotonic()))
        except ray.exceptions.GetTimeoutError:
            ray.cancel(self._reference, force=True)
            return TimeoutError("it did not answer")
        except Exception as error:
            return error
