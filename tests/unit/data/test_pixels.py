"""Pixel files: uniform or one after the other, image by image."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from see_tune.data.pixels import Pixels, shapes_file


def test_images_of_one_size_are_rows_of_one_array(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), np.uint8)
    np.save(tmp_path / "p.npy", images)
    assert np.array_equal(Pixels(tmp_path / "p.npy")[2], images[2])


def test_images_of_any_size_are_found_by_their_shapes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (height, width, 3), np.uint8) for height, width in ((2, 3), (5, 1), (4, 4))]
    np.save(tmp_path / "p.npy", np.concatenate([image.reshape(-1) for image in images]))
    np.save(shapes_file(tmp_path / "p.npy"), np.array([image.shape[:2] for image in images]))
    pixels = Pixels(tmp_path / "p.npy")
    assert all(np.array_equal(pixels[number], image) for number, image in enumerate(images))


def test_a_pixel_file_is_read_only(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", np.zeros((1, 2, 2, 3), np.uint8))
    assert not Pixels(tmp_path / "p.npy")[0].flags.writeable
