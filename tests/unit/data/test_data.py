"""DATASETS and read_table: one door to all datasets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from see_tune.data import DATASETS, dataset_layouts, read_table
from see_tune.errors import DatasetError

Make = Callable[..., Path]


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_has_a_reader_that_knows_its_layouts(name: str) -> None:
    assert dataset_layouts(name)
    assert DATASETS[name].ks[0] == 1


@pytest.mark.parametrize("name", [name for name, entry in DATASETS.items() if not entry.embedded])
def test_a_missing_root_names_every_place_the_layouts_the_source_and_the_way_out(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        read_table(name, places=[tmp_path / "one", tmp_path / "two"], cache=tmp_path)
    message = str(caught.value)
    places = [str(tmp_path / "one"), str(tmp_path / "two")]
    parts = [*places, *dataset_layouts(name), DATASETS[name].source, "dataset.root", "SEE_TUNE_DATA"]
    assert [part for part in parts if part not in message] == []


def test_the_first_place_that_exists_is_read(make_pictures: Make, tmp_path: Path) -> None:
    root = make_pictures("a/1.jpg")
    assert read_table("folder", places=[tmp_path / "none", root], cache=tmp_path).root == root


def test_an_unknown_dataset_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no dataset 'cub'\. There are cub200, cars196"):
        read_table("cub", places=[], cache=tmp_path)


def test_corrupt_images_are_left_to_the_check_or_dropped(make_pictures: Make, tmp_path: Path) -> None:
    root = make_pictures("a/1.jpg", "a/2.jpg")
    (root / "a" / "2.jpg").write_bytes(b"")
    assert len(read_table("folder", places=[root], cache=tmp_path / "cache")) == 2
    assert len(read_table("folder", places=[root], cache=tmp_path / "cache", on_corrupt="skip")) == 1


def test_a_number_of_classes_is_split_evenly(glyph_cache: Path) -> None:
    table = read_table("glyphs", places=(), cache=glyph_cache, classes=21)
    assert [len(set(table.labels[table.rows(split)])) for split in ("train", "test")] == [11, 10]


def test_the_registry_is_read_without_numpy_or_torch() -> None:
    code = "import sys, see_tune.data; print([name for name in ('numpy', 'torch', 'PIL') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
