"""inshop: four foldings of one archive give one table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from see_tune.data.inshop import COLUMNS, read
from see_tune.data.splits import split_table
from see_tune.errors import DatasetError

Parts = tuple[tuple[str, int, int, int], ...]
PUBLISHED: Parts = (("train", 25_882, 3_997, 1), ("query", 14_218, 3_985, 10_000), ("gallery", 12_612, 3_985, 10_000))
LAYOUTS = {
    "Inshop_Clothes": ("Inshop_Clothes/Eval", "Inshop_Clothes/Img/img"),
    "archive": ("In-shop Clothes Retrieval Benchmark/Eval", "In-shop Clothes Retrieval Benchmark/Img"),
    "img": ("Eval", "img"),
    "flat": (".", "img_highres"),
}


def partition(parts: Parts = PUBLISHED) -> str:
    """A partition file: a count, a header, and lines with ragged spaces."""
    lines = []
    for status, images, items, first in parts:
        for number in range(images):
            item = f"id_{first + number % items:08d}"
            lines.append(f"img/WOMEN/Dresses/{item}/{number:02d}_{status}.jpg   {item}       {status}\n")
    return f"{len(lines)}\n{COLUMNS}\n{''.join(lines)}"


@pytest.fixture(scope="module")
def published_partition() -> str:
    return partition()


def lay_out(root: Path, layout: str, text: str) -> Path:
    evaluation, images = (root / part for part in LAYOUTS[layout])
    evaluation.mkdir(parents=True, exist_ok=True)
    (images / "WOMEN").mkdir(parents=True)
    (evaluation / "list_eval_partition.txt").write_text(text)
    return images


def test_all_four_layouts_give_one_table(tmp_path: Path, published_partition: str) -> None:
    tables = []
    for layout in LAYOUTS:
        images = lay_out(tmp_path / layout, layout, published_partition)
        table = read(tmp_path / layout)
        assert table.file(0).parents[3] == images
        tables.append(table)
    assert len({table.fingerprint() for table in tables}) == 1


def test_counts_are_the_published_ones(tmp_path: Path, published_partition: str) -> None:
    lay_out(tmp_path, "img", published_partition)
    table = read(tmp_path)
    train, test = table.rows("train"), table.rows("test")
    assert (len(train), len(np.unique(table.labels[train]))) == (25_882, 3_997)
    assert (table.is_query[test].sum(), table.is_gallery[test].sum()) == (14_218, 12_612)
    assert len(np.unique(table.labels[test])) == 3_985
    split = split_table(table, kind="test")
    assert split.gallery_rows is not None
    assert (len(split.query_rows), len(split.gallery_rows)) == (14_218, 12_612)


def test_a_file_cut_short_is_found_by_its_own_count(tmp_path: Path, published_partition: str) -> None:
    lay_out(tmp_path, "img", published_partition[: len(published_partition) // 2].rpartition("\n")[0])
    with pytest.raises(DatasetError, match="announces 52,712 images and lists 2"):
        read(tmp_path)


def test_a_wrong_count_of_queries_is_an_error(tmp_path: Path) -> None:
    parts = (PUBLISHED[0], ("query", 14_217, 3_985, 10_000), ("gallery", 12_613, 3_985, 10_000))
    lay_out(tmp_path, "img", partition(parts))
    with pytest.raises(DatasetError, match="expected 14,218 queries, found 14,217"):
        read(tmp_path)
    assert read(tmp_path, allow_partial=True).notes == ("expected 14,218 queries, found 14,217",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not begin with a count and the header"),
        (f"1\n{COLUMNS}\nimg/a.jpg id_1 probe\n", "status 'probe' is none of train, query, gallery"),
        (f"1\n{COLUMNS}\nimg/../../x.jpg id_1 train\n", "lies outside"),
        (f"one\n{COLUMNS}\nimg/a.jpg id_1 train\n", "'one' is no whole number"),
        (f"1\n{COLUMNS}\nimg/a.jpg id_1\n", "has 2 fields"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    lay_out(tmp_path, "img", text)
    with pytest.raises(DatasetError, match=message):
        read(tmp_path, allow_partial=True)


def test_without_images_the_archives_own_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "list_eval_partition.txt").write_text(partition((("train", 4, 2, 1),)))
    assert read(tmp_path, allow_partial=True).file(0).is_relative_to(tmp_path / "Img" / "img")
