"""Neighbours are the nearest others, and the map is the principal plane."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from see_tune.data.splits import Split
from see_tune.data.table import build_table
from see_tune.report.gallery import EmbeddedTest, neighbours_of, project


@pytest.fixture
def tested() -> EmbeddedTest:
    """20 random embeddings of 5 test classes, among themselves."""
    names = [f"class {number % 5}" for number in range(20)]
    table = build_table("folder", Path("nowhere"), [f"{number}.png" for number in range(20)], names, ["test"] * 20)
    rows = np.arange(20)
    split = Split(rows[:0], rows[:0], 0, rows, None, "hash")
    draws = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    return EmbeddedTest(table, split, draws / np.linalg.norm(draws, axis=1, keepdims=True), None)


def test_neighbours_are_the_most_similar_others_in_order(tested: EmbeddedTest) -> None:
    chosen = np.array([3, 17])
    for query, found in zip(chosen, neighbours_of(tested, chosen, 8), strict=True):
        similarities = tested.queries @ tested.queries[query]
        assert found == [row for row in np.argsort(-similarities) if row != query][:8]


def test_a_query_among_its_own_gallery_never_finds_itself(tested: EmbeddedTest) -> None:
    everything = np.arange(20)
    found = neighbours_of(tested, everything, 100)
    assert all(query not in row and len(row) == 19 for query, row in enumerate(found))


def test_a_gallery_of_its_own_has_no_self(tested: EmbeddedTest) -> None:
    apart = EmbeddedTest(tested.table, tested.split, tested.queries, tested.queries.copy())
    assert [row[0] for row in neighbours_of(apart, np.arange(20), 3)] == list(range(20))


def test_the_map_keeps_distances_of_what_lies_in_a_plane() -> None:
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(30, 2)) @ np.linalg.qr(rng.normal(size=(6, 2)))[0].T + rng.normal(size=6)
    places, share = project(plane.astype(np.float32))
    assert share == pytest.approx(1)
    between = [np.linalg.norm(rows[:, None] - rows[None], axis=2) for rows in (plane, places)]
    np.testing.assert_allclose(between[1], between[0], atol=1e-5)


def test_equal_embeddings_make_a_map_of_one_point() -> None:
    places, share = project(np.ones((5, 3), np.float32))
    np.testing.assert_allclose(places, 0, atol=1e-6)
    assert share == 0
