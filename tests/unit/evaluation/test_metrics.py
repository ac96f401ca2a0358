"""Ranks to metrics, by hand-made ranks; NMI by clusters that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from see_tune.evaluation.metrics import normalized_mutual_information, precision_within_r, recall_at_k


def test_recall_is_the_share_of_ranks_up_to_k() -> None:
    ranks = np.array([1, 2, 3, 4])
    assert [recall_at_k(ranks, k) for k in (1, 2, 4, 100)] == [0.25, 0.5, 1.0, 1.0]


def test_recall_leaves_out_queries_without_a_positive() -> None:
    assert recall_at_k(np.array([0, 1, 0, 5]), 1) == 0.5


def test_precision_within_r_equals_the_worked_example() -> None:
    # R = 4: positives at 1, 3, 4 and 9. AP@R = (1/1 + 2/3 + 3/4) / 4, three of the first four are positives.
    average_precision, r_precision = precision_within_r(np.array([1, 3, 4, 9]), np.zeros(4, dtype=np.int64), np.array([4]))
    assert average_precision.tolist() == pytest.approx([(1 + 2 / 3 + 3 / 4) / 4])
    assert r_precision.tolist() == [0.75]


def test_each_query_has_its_own_r() -> None:
    position, query, positives = np.array([1, 2, 2]), np.array([1, 1, 3]), np.array([0, 2, 5, 1])
    average_precision, r_precision = precision_within_r(position, query, positives)
    assert average_precision.tolist() == r_precision.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_no_positions_at_all_give_zeros() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    average_precision, r_precision = precision_within_r(nothing, nothing, np.array([3, 0]))
    assert average_precision.tolist() == r_precision.tolist() == [0.0, 0.0]


def test_nmi_of_separate_clusters_is_1_and_of_one_point_0() -> None:
    labels = np.arange(60) % 3
    assert normalized_mutual_information(torch.eye(3)[labels] + 0.01, labels, seed=1) == pytest.approx(1.0)
    assert normalized_mutual_information(torch.ones(60, 3), labels, seed=1) == pytest.approx(0.0)


def test_nmi_of_one_seed_is_one_number() -> None:
    embeddings = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    labels = [f"class {row % 10}" for row in range(100)]
    first, second = (normalized_mutual_information(embeddings, labels, seed=3) for _ in range(2))
    assert first == second
    assert 0 < first < 1
