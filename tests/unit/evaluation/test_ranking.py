"""The sweep against a naive double loop, and every rule of the definition by itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from see_tune.errors import EvaluationError
from see_tune.evaluation import ranking
from see_tune.evaluation.ranking import rank_queries


@dataclass
class Case:
    queries: NDArray[np.float32]
    labels: NDArray[np.int64]
    gallery: NDArray[np.float32] | None = None
    gallery_labels: NDArray[np.int64] | None = None


def rank_naively(case: Case) -> list[tuple[int, float, float]]:
    """(rank of the best positive, average precision at R, R-precision) of each query, in float64."""
    queries = to_units(case.queries)
    gallery = queries if case.gallery is None else to_units(case.gallery)
    gallery_labels = case.labels if case.gallery_labels is None else case.gallery_labels
    answers = []
    for i, query in enumerate(queries):
        positives, negatives = [], []
        for j, other in enumerate(gallery):
            if case.gallery is None and i == j:
                continue
            (positives if gallery_labels[j] == case.labels[i] else negatives).append(float(query @ other))
        positives.sort(reverse=True)
        positions = [j + sum(n >= s - 1e-6 for n in negatives) for j, s in enumerate(positives, start=1)]
        r = len(positions)
        within = [position for position in positions if position <= r]
        precisions = [j / position for j, position in enumerate(within, start=1)]
        answers.append((positions[0] if positions else 0, sum(precisions) / max(r, 1), len(within) / max(r, 1)))
    return answers


def to_units(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / np.where(lengths == 0, 1, lengths)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Few distinct vectors and labels make ties, duplicates, zero rows, lone rows and classes without a gallery row common."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dim, classes, tied = draw(st.integers(1, 4)), draw(st.integers(1, 9)), draw(st.booleans())

    def rows(count: int) -> NDArray[np.float32]:
        vectors = random.integers(-2, 3, (count, dim)) if tied else random.normal(size=(count, dim))
        return vectors.astype(np.float32)

    queries = draw(st.integers(2, 30))
    labels = random.integers(0, classes, queries)
    if not draw(st.booleans()):
        labels[-1] = labels[0]
        return Case(rows(queries), labels)
    others = draw(st.integers(1, 30))
    gallery_labels = random.integers(0, classes, others)
    gallery_labels[0] = labels[0]
    return Case(rows(queries), labels, rows(others), gallery_labels)


@given(
    case=cases(),
    tile=st.sampled_from([2, 7, 1024]),
    sampled=st.sampled_from([4, 10**6]),
    part=st.sampled_from([3, 10**6]),
    ordered_from=st.sampled_from([0.0, 0.15, 2.0]),  # all queries by ordering, those of large classes, none
    ordered=st.sampled_from([40, 10**6]),
)
@settings(deadline=None, max_examples=200)
def test_ranks_equal_a_naive_double_loop(
    case: Case, tile: int, sampled: int, part: int, ordered_from: float, ordered: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_CPU_TILE", tile)
        patch.setattr(ranking, "_SAMPLED_AT_ONCE", sampled)
        patch.setattr(ranking, "_POSITIVES_AT_ONCE", part)
        patch.setattr(ranking, "_ORDERED_FROM", ordered_from)
        patch.setattr(ranking, "_ORDERED_AT_ONCE", ordered)
        ranks = rank_queries(case.queries, case.labels, gallery=case.gallery, gallery_labels=case.gallery_labels)
        alone = rank_queries(case.queries, case.labels, gallery=case.gallery, gallery_labels=case.gallery_labels, within_r=False)
    best, average_precision, r_precision = zip(*rank_naively(case), strict=True)
    assert ranks.best_positive_rank.tolist() == list(best) == alone.best_positive_rank.tolist()
    np.testing.assert_allclose(ranks.average_precision, average_precision, atol=1e-12)
    np.testing.assert_allclose(ranks.r_precision, r_precision, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=20)
def test_ranks_do_not_depend_on_the_order_of_the_rows(seed: int) -> None:
    random = np.random.default_rng(seed)
    embeddings, labels, order = random.normal(size=(60, 8)), random.integers(0, 9, 60), random.permutation(60)
    ranks, shuffled = rank_queries(embeddings, labels), rank_queries(embeddings[order], labels[order])
    assert (ranks.best_positive_rank[order] == shuffled.best_positive_rank).all()
    np.testing.assert_allclose(ranks.average_precision[order], shuffled.average_precision)


def test_many_tiles_of_many_dimensions_equal_the_full_matrix() -> None:
    random = np.random.default_rng(0)
    centres = random.normal(size=(500, 64))
    labels = random.integers(0, 500, 2500)
    embeddings = torch.tensor(centres[labels] + 1.2 * random.normal(size=(2500, 64)), dtype=torch.float32)
    units = torch.nn.functional.normalize(embeddings.double())
    similarity = (units @ units.T).fill_diagonal_(-torch.inf).numpy()
    same = labels[:, None] == labels
    best = np.where(same, similarity, -np.inf).max(1, keepdims=True)
    expected = 1 + ((similarity >= best - 1e-6) & ~same).sum(1)
    ranks = rank_queries(embeddings, labels)
    counted = ranks.has_positive
    # A float32 product may fall on the other side of the tolerance in a handful of rows.
    assert (ranks.best_positive_rank[counted] == expected[counted]).mean() > 0.999
    assert (ranks.best_positive_rank == rank_queries(embeddings, labels, within_r=False).best_positive_rank).all()


def test_tied_negatives_count_against_the_query() -> None:
    ranks = rank_queries(torch.ones(5, 3), [0, 0, 1, 1, 1])
    assert ranks.best_positive_rank.tolist() == [4, 4, 3, 3, 3]
    assert ranks.average_precision.tolist() == [0.0] * 5


@pytest.mark.parametrize("within_r", [False, True])
def test_a_negative_nearer_than_the_tolerance_is_tied(within_r: bool) -> None:
    angles = torch.tensor([0.0, 0.1, 0.1 + 5e-6, 0.1 + 1e-4])
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = [0, 0, 1, 1]
    assert rank_queries(embeddings, labels, within_r=within_r).best_positive_rank[0] == 2
    assert rank_queries(embeddings[[0, 1, 3, 3]], labels, within_r=within_r).best_positive_rank[0] == 1


@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1])
def test_a_constant_embedding_finds_nothing(constant: float) -> None:
    labels = np.arange(3000) % 600
    embeddings = torch.full((3000, 33), constant)
    ranks = rank_queries(embeddings, labels)
    assert (ranks.best_positive_rank == 3000 - 5 + 1).all()
    assert ranks.r_precision.sum() == 0
    assert (rank_queries(embeddings, labels, within_r=False).best_positive_rank == ranks.best_positive_rank).all()


def test_self_is_excluded_by_index_not_by_position() -> None:
    duplicates = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert rank_queries(duplicates, [0, 0, 1, 1]).best_positive_rank.tolist() == [1, 1, 1, 1]
    assert rank_queries(duplicates, [0, 1, 0, 1]).best_positive_rank.tolist() == [3, 3, 3, 3]


def test_a_query_gallery_set_has_no_self() -> None:
    rows = torch.eye(3)
    ranks = rank_queries(rows, [0, 1, 2], gallery=rows, gallery_labels=[0, 1, 2])
    assert ranks.best_positive_rank.tolist() == [1, 1, 1]
    assert (ranks.candidates, ranks.positives.tolist()) == (3, [1, 1, 1])


def test_a_query_without_a_positive_has_rank_0() -> None:
    ranks = rank_queries(torch.eye(3), ["a", "b", "a"])
    assert ranks.best_positive_rank.tolist() == [2, 0, 2]
    assert ranks.has_positive.tolist() == [True, False, True]


def test_labels_that_float32_would_merge_stay_apart() -> None:
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])
    labels = torch.tensor([2**24, 2**24 + 1, 2**24 + 1])
    assert rank_queries(embeddings, labels).best_positive_rank.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a", "b"],
        np.array(["b", "a", "b"], dtype=object),
        [-1, 2**62, -1],
        [True, False, True],
        np.array([7, 2**40, 7], dtype=object),
        [torch.tensor(1), torch.tensor(2), torch.tensor(1)],
        np.ma.masked_array([1, 2, 1], mask=[False] * 3),
    ],
)
def test_labels_of_any_kind_mean_the_same(labels: object) -> None:
    assert rank_queries(torch.eye(3), labels).best_positive_rank.tolist() == [2, 0, 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_float_type_is_ranked_in_float32(dtype: torch.dtype) -> None:
    embeddings = torch.randn(200, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    labels = torch.arange(200) % 40
    expected = rank_queries(embeddings.float(), labels)
    assert (rank_queries(embeddings, labels).best_positive_rank == expected.best_positive_rank).all()


def test_autocast_around_the_call_changes_nothing() -> None:
    embeddings = torch.randn(300, 32, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.arange(300) % 60
    expected = rank_queries(embeddings, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ranks = rank_queries(embeddings, labels)
    assert (ranks.best_positive_rank == expected.best_positive_rank).all()


def test_the_same_call_gives_the_same_numbers() -> None:
    embeddings = torch.randn(3000, 16, generator=torch.Generator().manual_seed(0))
    first, second = (rank_queries(embeddings, np.arange(3000) % 700) for _ in range(2))
    assert (first.average_precision == second.average_precision).all()


RANK_AND_SAY_MEGABYTES = """
import resource, torch
from see_tune.evaluation import evaluate_embeddings
torch.set_num_threads(1)
embeddings, labels = torch.randn(ROWS, 8), torch.arange(ROWS) % CLASSES
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
evaluate_embeddings(embeddings[:500], labels[:500] % 100)
before = peak()
evaluate_embeddings(embeddings, labels, ks=(1, 1000))
print(peak() - before)
"""


@pytest.mark.parametrize(("rows", "classes", "megabytes"), [(20_000, 4_000, 400), (10_000, 3, 250)])
def test_memory_is_bounded_whatever_the_number_of_pairs(rows: int, classes: int, megabytes: int) -> None:
    """All similarities of 20,000 rows are 1,600 MB, of 10,000 400 MB; what is held beside the rows is that of a few tiles."""
    code = RANK_AND_SAY_MEGABYTES.replace("ROWS", str(rows)).replace("CLASSES", str(classes))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < megabytes


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_embeddings_are_refused_with_their_row(value: float) -> None:
    embeddings = torch.ones(10, 4)
    embeddings[7, 2] = value
    with pytest.raises(EvaluationError, match="row 7 of the embeddings holds NaN"):
        rank_queries(embeddings, [1, 0] * 5)
    with pytest.raises(EvaluationError, match="row 7 of the gallery embeddings"):
        rank_queries(torch.ones(10, 4), [1, 0] * 5, gallery=embeddings, gallery_labels=[1, 0] * 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [0, 0]}, "do not fit 4 embeddings"),
        ({"labels": [0.0, 0.0, 1.0, 1.0]}, "Floating-point labels are refused"),
        ({"labels": [0, None, 0, None]}, "row 1 of the labels is None"),
        ({"labels": ["a", "a", float("nan"), "b"]}, "row 2 of the labels is nan"),
        ({"labels": np.array(["a", "a", None, "b"], dtype=object)}, "row 2 of the labels is None"),
        ({"labels": [1, "1", 1, "1"]}, "row 1 of the labels is '1'"),
        ({"labels": [1, 2**64, 1, 1]}, "row 1 of the labels is 18446744073709551616"),
        ({"labels": [[0], [0, 1], [0], [0]]}, r"row 0 of the labels is \[0\]"),
        ({"labels": np.ma.masked_equal([0, 0, 1, 1], 1)}, "labels have masked entries"),
        ({"labels": [0] * 4, "gallery": [[1.0], [1.0, 2.0]], "gallery_labels": [0, 0]}, "gallery embeddings are no array"),
        ({"labels": [0, 1, 2, 3]}, "none of the 4 queries has a positive"),
        ({"labels": [0] * 4, "gallery": torch.ones(2, 3)}, "only one of them was given"),
        ({"labels": [0] * 4, "gallery_labels": [0]}, "only one of them was given"),
        ({"labels": [0] * 4, "gallery": torch.ones(2, 5), "gallery_labels": [0, 0]}, "5 dimensions"),
        ({"labels": [0] * 4, "gallery": torch.ones(2, 3), "gallery_labels": ["0", "0"]}, "cannot be compared"),
    ],
)
def test_what_does_not_agree_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        rank_queries(torch.ones(4, 3), **arguments)


def test_similarities_sort_exactly_within_their_query() -> None:
    values = torch.tensor([1.0, 0.5, 1e-30, 0.0, -1e-30, -0.5, -1.0, -torch.inf])
    keys = ranking._sort_keys(torch.zeros(8, dtype=torch.int64), values)
    assert (keys.diff() > 0).all()
    assert (ranking._sort_keys(torch.ones(8, dtype=torch.int64), values) > keys.max()).all()
    assert ranking._sort_keys(torch.tensor([3]), torch.tensor([-0.0])) == ranking._sort_keys(
        torch.tensor([3]), torch.tensor([0.0])
    )
