"""The check of a dataset: undecodable images, twins across the split, counts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from see_tune.data import inspection
from see_tune.data.inspection import check_table, contact_sheet, drop_undecodable, find_undecodable
from see_tune.data.table import ImageTable, build_table
from see_tune.errors import DatasetError

Make = Callable[..., Path]


@pytest.fixture
def table(make_pictures: Make) -> ImageTable:
    """Two training classes of two images, a test class of two and one of one."""
    paths = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg", "c/1.jpg", "c/2.jpg", "d/1.jpg"]
    return build_table("folder", make_pictures(*paths), paths, [path[0] for path in paths], ["train"] * 4 + ["test"] * 3)


def test_a_sound_dataset_has_no_problems(table: ImageTable, tmp_path: Path) -> None:
    check = check_table(table, cache=tmp_path / "cache")
    assert check.problems == ()
    assert (check.images, check.classes) == ({"train": 4, "validation": 0, "test": 3}, {"train": 2, "validation": 0, "test": 2})
    assert (check.smallest, check.largest) == (("d", 1), ("a", 2))


def test_every_image_that_does_not_decode_is_named_and_counted(table: ImageTable, tmp_path: Path) -> None:
    table.file(1).write_bytes(b"")
    table.file(4).write_text("text")
    table.file(5).unlink()
    check = check_table(table, cache=tmp_path / "cache")
    assert [error.partition(": ")[0] for error in check.undecodable] == [str(table.file(row)) for row in (1, 4, 5)]
    assert check.problems[0].startswith("3 of 7 images do not decode:\n")


def test_twins_across_the_split_are_found_and_twins_within_a_side_are_not(table: ImageTable, tmp_path: Path) -> None:
    shutil.copy(table.file(0), table.file(5))
    shutil.copy(table.file(2), table.file(3))
    check = check_table(table, cache=tmp_path / "cache")
    assert check.straddling == (("a/1.jpg", "c/2.jpg"),)
    assert "1 picture is both in training and in test" in check.problems[0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"split": np.array(["train"] * 2 + ["validation"] * 2 + ["test"] * 3)}, "training classes: 1"),
        ({"split": np.array(["train"] * 4 + ["test"] * 2 + ["validation"])}, "1 class to be measured on (the test split)"),
        ({"is_gallery": np.zeros(7, np.bool_)}, "3 queries and 0 gallery images"),
        (
            {"is_query": np.arange(7) < 6, "is_gallery": np.arange(7) == 6},
            "no query of the test split has a gallery image of its class",
        ),
    ],
)
def test_a_split_that_measures_nothing_is_a_problem(
    table: ImageTable, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    (problem,) = check_table(replace(table, **changes), cache=tmp_path / "cache").problems
    assert says in problem


def test_a_dataset_without_test_classes_is_sound_and_its_note_says_what_it_cannot_have(table: ImageTable, tmp_path: Path) -> None:
    check = check_table(replace(table, split=np.full(7, "train")), cache=tmp_path / "cache")
    assert check.problems == ()
    assert "final: none" in check.notes[0]


def test_test_classes_of_one_image_each_are_a_problem(table: ImageTable, tmp_path: Path) -> None:
    (problem,) = check_table(table.take(np.array([0, 1, 2, 3, 4, 6])), cache=tmp_path / "cache").problems
    assert "no class of the test split has two images" in problem


def test_why_a_search_would_be_refused_is_a_note_where_it_is_no_problem_already(table: ImageTable, tmp_path: Path) -> None:
    (note,) = check_table(table, cache=tmp_path / "cache").notes
    assert note.startswith("a search would be refused: folder at")
    assert "2 training classes, too few to hold any out" in note


def test_a_copy_under_another_root_is_decoded_for_itself(table: ImageTable, tmp_path: Path) -> None:
    assert find_undecodable(table, cache=tmp_path / "cache") == {}
    copy = replace(table, root=shutil.copytree(table.root, tmp_path / "copy"))
    spoil(copy.file(2))
    assert list(find_undecodable(copy, cache=tmp_path / "cache")) == [2]
    assert str(copy.root) in find_undecodable(copy, cache=tmp_path / "cache")[2]


def test_the_check_finds_a_file_that_rotted_and_kept_its_time_and_remembers_it(table: ImageTable, tmp_path: Path) -> None:
    assert check_table(table, cache=tmp_path / "cache").undecodable == ()
    spoil(table.file(2))
    assert find_undecodable(table, cache=tmp_path / "cache") == {}
    assert len(check_table(table, cache=tmp_path / "cache").undecodable) == 1
    assert list(find_undecodable(table, cache=tmp_path / "cache")) == [2]


def spoil(file: Path) -> None:
    """Other bytes of the same size and time."""
    before = file.stat()
    file.write_bytes(b"x" * before.st_size)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_images_are_decoded_once_until_a_file_changes(table: ImageTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_undecodable(table, cache=tmp_path / "cache") == {}
    opened: list[Path] = []
    monkeypatch.setattr(inspection, "open_rgb", opened.append)
    find_undecodable(table, cache=tmp_path / "cache")
    assert opened == []
    content = table.file(0).read_bytes()
    table.file(0).write_bytes(content[:-1] + b"x")  # of the same size
    find_undecodable(table, cache=tmp_path / "cache")
    assert len(opened) == len(table)


def test_skipping_drops_the_rows_and_reports_their_number(table: ImageTable, tmp_path: Path) -> None:
    table.file(2).write_bytes(b"")
    kept = drop_undecodable(table, cache=tmp_path / "cache")
    assert kept.paths == tuple(path for path in table.paths if path != "b/1.jpg")
    assert kept.notes == ("1 of 7 images does not decode, left out (on_corrupt: skip): b/1.jpg",)


def test_a_dataset_of_which_nothing_decodes_is_an_error(table: ImageTable, tmp_path: Path) -> None:
    for row in range(len(table)):
        table.file(row).write_bytes(b"")
    with pytest.raises(DatasetError, match="none of the 7 images of folder decodes"):
        drop_undecodable(table, cache=tmp_path / "cache")


def test_progress_is_told_image_by_image(table: ImageTable, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    check_table(table, cache=tmp_path / "cache", progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 7) for done in range(1, 8)]


def test_glyphs_are_sound(glyph_table: ImageTable, tmp_path: Path) -> None:
    assert check_table(glyph_table, cache=tmp_path).problems == ()


def test_a_contact_sheet_shows_each_row_in_its_square(glyph_table: ImageTable) -> None:
    sheet = contact_sheet(glyph_table, np.array([0, 1, 2]), columns=2, side=32)
    assert sheet.size == (64, 64)
    pixels = np.load(glyph_table.pixels or Path(), mmap_mode="r")
    assert np.array_equal(np.asarray(sheet)[:32, 32:], pixels[1])
    assert np.asarray(sheet)[32:, 32:].min() == 255
