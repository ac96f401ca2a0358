"""Splits: class-disjoint, seeded, and never a test row during a search."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from see_tune.data.splits import split_table
from see_tune.data.table import ImageTable, build_table
from see_tune.errors import DatasetError


def make_table(train: list[int], test: list[int], validation: list[int] | None = None, *, in_shop: bool = False) -> ImageTable:
    """A table with one class for each number, of so many images; in_shop: a test class's first image asks, the rest answer."""
    rows = [
        (f"{split}{label}", split, number)
        for split, counts in (("train", train), ("validation", validation or []), ("test", test))
        for label, count in enumerate(counts)
        for number in range(count)
    ]
    asks = [not in_shop or split == "train" or number == 0 for _, split, number in rows]
    answers = [not in_shop or split == "train" or number > 0 for _, split, number in rows]
    classes, splits = [name for name, _, _ in rows], [split for _, split, _ in rows]
    return build_table("folder", Path("/r"), [f"{n}.jpg" for n in range(len(rows))], classes, splits, query=asks, gallery=answers)


sizes = st.lists(st.integers(1, 5), min_size=8, max_size=20)


@settings(deadline=None, max_examples=60)
@given(sizes, sizes, st.integers(-5, 2**40), st.booleans(), st.sampled_from(["fraction", "fold"]), st.data())
def test_a_search_never_sees_a_test_row(
    train: list[int], test: list[int], seed: int, in_shop: bool, kind: str, data: st.DataObject
) -> None:
    table = make_table([2, 2, *train], test, in_shop=in_shop)
    fold = data.draw(st.integers(0, 3))
    try:
        split = split_table(table, kind=kind, seed=seed, fold=fold)  # type: ignore[arg-type]
    except DatasetError as error:
        assert re.search("no (class|query) of the held-out training classes has", str(error))
        return
    seen = [split.train_rows, split.query_rows, *([] if split.gallery_rows is None else [split.gallery_rows])]
    assert not np.isin(np.concatenate(seen), table.rows("test")).any()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(2, 5), min_size=8, max_size=20), st.integers(0, 100), st.floats(0.01, 0.99))
def test_training_and_validation_classes_are_disjoint_and_complete(train: list[int], seed: int, fraction: float) -> None:
    table = make_table(train, [2, 2])
    split = split_table(table, kind="fraction", seed=seed, fraction=fraction)
    trained, measured = set(table.labels[split.train_rows]), set(table.labels[split.query_rows])
    assert not trained & measured
    assert trained | measured == set(table.labels[table.rows("train")])
    assert min(len(trained), len(measured)) >= 2


def test_every_class_is_held_out_by_exactly_one_fold() -> None:
    table = make_table([3] * 10, [2])
    held_out = [set(table.labels[split_table(table, kind="fold", seed=3, folds=4, fold=fold).query_rows]) for fold in range(4)]
    assert sum(map(len, held_out)) == len(set.union(*held_out)) == 10


def test_train_labels_are_contiguous_and_in_row_order() -> None:
    table = make_table([2] * 10, [2])
    split = split_table(table, seed=1)
    assert split.train_labels.dtype == np.int64
    assert np.array_equal(np.unique(split.train_labels), np.arange(split.num_classes))
    pairs = set(zip(table.labels[split.train_rows].tolist(), split.train_labels.tolist(), strict=True))
    assert len(pairs) == split.num_classes == 8


def test_the_same_seed_gives_the_same_hash_and_another_seed_another() -> None:
    table = make_table([2] * 10, [2])
    hashes = [split_table(table, seed=seed).hash for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert len(hashes[0]) == 16


def test_validation_rows_of_the_table_are_used_as_they_are() -> None:
    table = make_table([2] * 3, [2], validation=[2, 3])
    split = split_table(table, seed=9)
    assert np.array_equal(split.query_rows, table.rows("validation"))
    assert np.array_equal(split.train_rows, table.rows("train"))


@pytest.mark.parametrize("kind", ["test", "paper"])
def test_final_runs_train_on_all_training_classes_and_meet_the_test_classes(kind: str) -> None:
    table = make_table([2] * 3, [2, 2], validation=[2])
    split = split_table(table, kind=kind)  # type: ignore[arg-type]
    assert np.array_equal(split.train_rows, np.flatnonzero(table.split != "test"))
    assert np.array_equal(split.query_rows, table.rows("test"))
    assert split.gallery_rows is None


def test_in_shop_meets_its_own_queries_and_gallery_in_the_test() -> None:
    table = make_table([2] * 4, [3, 2], in_shop=True)
    split = split_table(table, kind="test")
    assert split.gallery_rows is not None
    assert table.is_query[split.query_rows].all()
    assert table.is_gallery[split.gallery_rows].all()
    assert not np.isin(split.query_rows, split.gallery_rows).any()


def test_in_shop_validation_halves_each_held_out_item_and_reports_the_lonely_ones() -> None:
    table = make_table([5, 4, 1, 1], [3], in_shop=True)
    splits = (split_table(table, seed=seed, fraction=0.5) for seed in range(50))
    with_lonely = next(split for split in splits if split.notes and len(split.query_rows) == 2)
    assert with_lonely.gallery_rows is not None
    assert with_lonely.notes == ("1 of 2 measured classes has one image: they are in the gallery and can't be queries",)
    asked, answered = (np.unique(table.labels[rows]) for rows in (with_lonely.query_rows, with_lonely.gallery_rows))
    assert (len(asked), len(answered)) == (1, 2)
    assert not np.isin(with_lonely.query_rows, with_lonely.gallery_rows).any()


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (make_table([5], []), {}, "1 training class, too few"),
        (make_table([5] * 3, []), {}, "4 in all"),
        (make_table([5] * 7, []), {"kind": "fold", "folds": 4}, "7 training classes, too few for 4 folds"),
        (make_table([5] * 7, []), {"kind": "test"}, "final: none"),
        (make_table([5] * 7, [3]), {"kind": "test"}, r"1 class to be measured on \(the test split\)"),
        (make_table([5] * 7, [], validation=[3]), {}, r"1 class to be measured on \(the validation split\)"),
    ],
)
def test_too_few_classes_is_an_error_that_says_what_is_needed(
    table: ImageTable, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        split_table(table, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments", [{"fraction": 0.0}, {"fraction": 1.0}, {"kind": "fold", "fold": 4}, {"kind": "fold", "folds": 1}]
)
def test_impossible_fractions_and_folds_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"fraction|fold"):
        split_table(make_table([2] * 9, []), **arguments)  # type: ignore[arg-type]


def test_an_image_that_asks_and_answers_in_a_query_gallery_set_is_refused() -> None:
    labels, splits = ["a", "b", "c", "c", "d"], ["train", "train", "test", "test", "test"]
    table = build_table(
        "manifest",
        Path("/r"),
        [f"{number}.jpg" for number in range(5)],
        labels,
        splits,
        query=[True, True, True, False, False],
        gallery=[True] * 5,
    )
    with pytest.raises(DatasetError, match=r"1 image is both query and gallery of the test split \(first: 2.jpg\)"):
        split_table(table, kind="test", seed=0)


PAIRLESS = "no class of the {} has two images, so that no query has one to find"


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (make_table([5] * 8, [1] * 9), {"kind": "test"}, PAIRLESS.format("test split")),
        (make_table([5] * 8, [1] * 9), {"kind": "paper"}, PAIRLESS.format("test split")),
        (make_table([5] * 8, [5] * 2, validation=[1, 1]), {}, PAIRLESS.format("validation split")),
        (make_table([1] * 8, [5] * 2), {}, PAIRLESS.format("held-out training classes")),
        (make_table([1] * 8, [5] * 2), {"kind": "fold", "fold": 3}, PAIRLESS.format("held-out training classes")),
        (make_table([1] * 8, [5] * 2, in_shop=True), {}, "no query of the held-out training classes has a gallery image"),
        (make_table([5] * 8, [1] * 2 + [0], in_shop=True), {"kind": "test"}, "2 queries and 0 gallery images of the test split"),
    ],
)
def test_a_split_none_of_whose_queries_has_an_image_to_find_is_refused_and_names_its_images(
    table: ImageTable, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        split_table(table, **arguments)  # type: ignore[arg-type]


def test_queries_that_share_no_class_with_the_gallery_are_refused() -> None:
    table = make_table([5] * 8, [2, 2])
    first = table.labels == table.labels[table.rows("test")[0]]
    test = table.split == "test"
    apart = replace(table, is_query=~test | first, is_gallery=~test | ~first)
    with pytest.raises(DatasetError, match="no query of the test split has a gallery image of its class"):
        split_table(apart, kind="test")


@pytest.mark.parametrize("marks", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("kind", ["fraction", "fold"])
def test_training_images_that_are_marked_with_no_pair_of_roles_get_theirs_as_unmarked_ones_do(
    marks: tuple[bool, bool], kind: str
) -> None:
    table = make_table([4] * 8, [3, 2], in_shop=True)
    train = table.split == "train"
    query, gallery = (np.where(train, mark, roles) for mark, roles in zip(marks, (table.is_query, table.is_gallery), strict=True))
    unmarked, marked = (
        split_table(one, kind=kind)  # type: ignore[arg-type]
        for one in (table, replace(table, is_query=query, is_gallery=gallery))
    )
    assert np.array_equal(marked.query_rows, unmarked.query_rows)
    assert marked.gallery_rows is not None and unmarked.gallery_rows is not None
    assert np.array_equal(marked.gallery_rows, unmarked.gallery_rows)


def test_roles_are_not_made_up_where_the_test_images_have_none() -> None:
    table = make_table([4] * 8, [3, 2])
    unasked = replace(table, is_query=table.split == "test")
    with pytest.raises(DatasetError, match="0 queries and 8 gallery images of the held-out training classes"):
        split_table(unasked)
