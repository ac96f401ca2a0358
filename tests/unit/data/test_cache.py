"""The decoded cache: built once, evaluated to the last bit like the files, bounded."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from see_tune.data import cache as decoded
from see_tune.data.cache import cached_table
from see_tune.data.loading import Loader
from see_tune.data.pictures import Images
from see_tune.data.table import ImageTable, build_table
from see_tune.data.transforms import Preprocessing
from see_tune.errors import DatasetError

Make = Callable[..., Path]
PREPROCESSING = Preprocessing(16, 20)


def build(table: ImageTable, folder: Path, limit_gb: float = 1.0) -> ImageTable:
    return cached_table(table, cache=folder, resize_size=20, limit_gb=limit_gb, threads=2)


def evaluated(table: ImageTable) -> torch.Tensor:
    loader = Loader(table, PREPROCESSING, crop_scale_min=0.5, flip=True, seed=0, workers=0)
    return torch.cat(list(loader.evaluate(np.arange(len(table)), 8)))


def test_images_are_evaluated_the_same_to_the_last_bit(picture_table: ImageTable, tmp_path: Path) -> None:
    assert torch.equal(evaluated(build(picture_table, tmp_path / "cache")), evaluated(picture_table))


def test_training_crops_show_the_same_part_of_the_image(tmp_path: Path) -> None:
    down, across = np.mgrid[0:90, 0:120]
    gradient = np.stack([2 * across, 2 * down, across + down], axis=2).astype(np.uint8)
    Image.fromarray(gradient).save(tmp_path / "1.png")
    table = build_table("folder", tmp_path, ["1.png"], ["a"], ["train"])

    def crops(table: ImageTable) -> torch.Tensor:
        loader = Loader(table, PREPROCESSING, crop_scale_min=0.3, flip=True, seed=0, workers=0)
        return torch.cat([images for images, _ in loader.train(1, [np.zeros(20, np.int64)])])

    difference = (crops(build(table, tmp_path / "cache")) - crops(table)).abs() * 0.225 * 255
    assert difference.mean() < 4  # grey levels; a crop elsewhere, or one not mirrored alike, is off by dozens


def test_images_keep_their_proportions_and_are_upright(make_pictures: Make, tmp_path: Path) -> None:
    root = make_pictures("a/1.png", size=(90, 30))
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.fromarray(np.zeros((30, 60, 3), np.uint8)).save(root / "a" / "2.jpg", exif=exif)
    table = build(build_table("folder", root, ["a/1.png", "a/2.jpg"], ["a", "a"], ["train"] * 2), tmp_path / "cache")
    assert [Images(table)[row].size for row in (0, 1)] == [(60, 20), (20, 40)]


def test_the_identity_of_the_dataset_stays(picture_table: ImageTable, tmp_path: Path) -> None:
    assert build(picture_table, tmp_path / "cache").fingerprint() == picture_table.fingerprint()


def test_a_cache_is_built_once_and_anew_when_a_file_changes(
    picture_table: ImageTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []
    fill = decoded._fill

    def count(table: ImageTable, file: Path, *rest: Any) -> None:
        built.append(file)
        fill(table, file, *rest)

    monkeypatch.setattr(decoded, "_fill", count)
    first, second = build(picture_table, tmp_path / "cache"), build(picture_table, tmp_path / "cache")
    assert (len(built), first.pixels) == (1, second.pixels)
    Image.new("RGB", (50, 50)).save(picture_table.file(0))
    third = build(picture_table, tmp_path / "cache")
    assert len(built) == 2
    assert np.asarray(Images(third)[0]).max() < 5


def build_and_name(table: ImageTable, folder: Path) -> str:
    """In a process of its own: which file was built, when."""
    pixels = build(table, folder).pixels
    assert pixels is not None
    return f"{pixels} {pixels.stat().st_ino} {pixels.stat().st_mtime_ns}"


def test_processes_that_start_together_build_one_cache(picture_table: ImageTable, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["see_tune.data.cache"])
    with context.Pool(4) as pool:
        names = pool.starmap(build_and_name, [(picture_table, tmp_path / "cache")] * 4, chunksize=1)
    assert len(set(names)) == 1
    assert len([entry for entry in (tmp_path / "cache").iterdir() if entry.is_dir()]) == 1


def test_a_cache_over_the_limit_is_refused_with_its_size(picture_table: ImageTable, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"takes 0\.00 GB; .* data\.cache_limit_gb 1e-06"):
        build(picture_table, tmp_path / "cache", limit_gb=1e-6)
    assert not list((tmp_path / "cache").glob("*/"))


def test_caches_that_are_there_count_against_the_limit(picture_table: ImageTable, tmp_path: Path) -> None:
    first = build(picture_table, tmp_path / "cache", limit_gb=5e-5)
    with pytest.raises(DatasetError, match=str((first.pixels or Path()).parent)):
        cached_table(picture_table, cache=tmp_path / "cache", resize_size=21, limit_gb=5e-5)


def test_an_image_that_does_not_decode_leaves_no_half_cache(picture_table: ImageTable, tmp_path: Path) -> None:
    file = picture_table.file(5)
    file.write_bytes(file.read_bytes()[:-900])
    with pytest.raises(DatasetError, match=r"2\.jpg: does not decode"):
        build(picture_table, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/"))


def test_a_table_with_pixels_is_returned_as_it_is(glyph_table: ImageTable, tmp_path: Path) -> None:
    assert build(glyph_table, tmp_path) is glyph_table
