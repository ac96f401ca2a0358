"""How trials share the machines out."""

from __future__ import annotations

import pytest

from see_tune.search.nodes import Node, Resources, count_slots, share_out
from see_tune.spec.models import ResourcesSpec


def nodes(*sizes: tuple[int, int]) -> list[Node]:
    return [Node(str(number), f"host{number}", cpus, gpus) for number, (cpus, gpus) in enumerate(sizes)]


@pytest.mark.parametrize(
    ("wanted", "machines", "expected"),
    [
        ({}, [(2, 0)], Resources(1, 0, 2)),
        ({}, [(16, 0)], Resources(4, 0, 4)),
        ({"max_parallel": 1}, [(16, 0)], Resources(16, 0, 1)),
        ({"cpus": 2}, [(16, 0)], Resources(2, 0, 8)),
        ({}, [(16, 2)], Resources(8, 1, 2)),
        ({"gpus": 0.5}, [(16, 2)], Resources(4, 0.5, 4)),
        ({"gpus": 0}, [(16, 2)], Resources(4, 0, 4)),
        ({}, [(0, 0), (8, 0), (8, 0)], Resources(2, 0, 8)),  # a head that takes no trials
        ({}, [(0, 0), (2, 0), (8, 0)], Resources(1, 0, 10)),  # the small one gets some too
        ({}, [(8, 0), (8, 1)], Resources(8, 1, 1)),  # a trial that finds a GPU waits for one
        ({"max_parallel": 3}, [(8, 0), (8, 0)], Resources(4, 0, 3)),
        ({}, [(2, 8)], Resources(1, 1, 2)),  # fewer cores than GPUs
        ({}, [(0, 0)], Resources(1, 0, 1)),
    ],
)
def test_all_trials_get_the_same_and_the_machines_are_full(
    wanted: dict[str, float], machines: list[tuple[int, int]], expected: Resources
) -> None:
    assert share_out(ResourcesSpec.model_validate(wanted), nodes(*machines)) == expected


def test_slots_follow_the_nodes() -> None:
    wanted = ResourcesSpec(cpus=2)
    counts = [count_slots(wanted, nodes(*[(4, 0)] * number), 2, 0.0) for number in (0, 1, 2)]
    assert counts == [1, 2, 4]  # one row waits for a node to come
