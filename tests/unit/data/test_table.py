"""ImageTable: rows, identity and subsets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from see_tune.data.table import ImageTable, build_table, check_disjoint, take_classes
from see_tune.errors import DatasetError


@pytest.fixture
def table() -> ImageTable:
    classes = ["b", "b", "a", "a", "c", "d"]
    return build_table("folder", Path("/r"), [f"{n}.jpg" for n in range(6)], classes, ["train"] * 4 + ["test"] * 2)


def test_a_message_names_where_a_dataset_lies_and_of_an_embedded_one_no_folder_of_ours() -> None:
    ours = build_table("glyphs", Path("/tmp/made-on-the-spot"), ["1.png"], ["a"], ["train"])
    theirs = build_table("folder", Path("/pictures"), ["1.png"], ["a"], ["train"])
    assert (ours.place, theirs.place) == ("glyphs", "folder at /pictures")


def test_classes_are_numbered_in_the_order_they_appear(table: ImageTable) -> None:
    assert table.class_names == ("b", "a", "c", "d")
    assert table.labels.tolist() == [0, 0, 1, 1, 2, 3]


def test_the_fingerprint_does_not_depend_on_where_the_files_lie(table: ImageTable) -> None:
    moved = replace(table, root=Path("/elsewhere"), files=tuple(f"nested/{path}" for path in table.paths))
    assert moved.fingerprint() == table.fingerprint()


def test_the_fingerprint_depends_on_labels_and_splits(table: ImageTable) -> None:
    relabelled = replace(table, labels=table.labels[::-1].copy())
    resplit = replace(table, split=table.split[::-1].copy())
    assert len({table.fingerprint(), relabelled.fingerprint(), resplit.fingerprint()}) == 3


def test_taken_rows_keep_their_files_and_pixels(table: ImageTable) -> None:
    table = replace(table, files=tuple(f"x/{path}" for path in table.paths), pixels=Path("p.npy"))
    taken = table.take(np.array([4, 1])).take(np.array([1]))
    assert (taken.paths, taken.file(0), taken.pixel_row(0)) == (("1.jpg",), Path("/r/x/1.jpg"), 1)


def test_a_subset_of_classes_takes_half_from_each_side(table: ImageTable) -> None:
    taken = take_classes(table, 2, seed=0)
    assert [len(np.unique(taken.labels[taken.rows(split)])) for split in ("train", "test")] == [1, 1]
    assert taken.fingerprint() == take_classes(table, 2, seed=0).fingerprint()


def test_more_classes_than_there_are_is_an_error_that_says_how_many_there_are(table: ImageTable) -> None:
    with pytest.raises(DatasetError, match="It is at most 4"):
        take_classes(table, 6, seed=0)


def test_a_class_on_both_sides_of_the_split_is_refused(table: ImageTable) -> None:
    with pytest.raises(DatasetError, match=r"1 class is in train and in test \(first: 'b'\)"):
        check_disjoint(replace(table, split=np.array(["train", "test"] + ["train"] * 4, "<U10")))
