"""Pixels: decoded images in one memory-mapped file, shared by every process of a node.

Two forms, both plain .npy (no pickle): an (M, H, W, 3) uint8 array where all images have one size (the glyphs), or a flat
uint8 array of images one after the other beside ``<name>.shapes.npy``, their (M, 2) heights and widths (the decoded cache).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def shapes_file(pixels: Path) -> Path:
    """Where the heights and widths of a flat pixel file lie."""
    return pixels.with_suffix(".shapes.npy")


class Pixels:
    """A pixel file, opened read-only unless it is being filled; image i is ``pixels[i]``, a (H, W, 3) uint8 view."""

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        self._data: NDArray[np.uint8] = np.load(path, mmap_mode="r+" if writable else "r", allow_pickle=False)
        self._shapes: NDArray[np.int64] | None = None
        if self._data.ndim == 1:
            self._shapes = np.load(shapes_file(path), allow_pickle=False)
            self._ends = np.cumsum(self._shapes.prod(axis=1) * 3)

    @property
    def of_any_size(self) -> bool:
        """Whether each image has a size of its own: the second form."""
        return self._shapes is not None

    def __getitem__(self, image: int) -> NDArray[np.uint8]:
        if self._shapes is None:
            picture: NDArray[np.uint8] = self._data[image]
            return picture
        height, width = self._shapes[image].tolist()
        end = int(self._ends[image])
        return self._data[end - height * width * 3 : end].reshape(height, width, 3)

    def flush(self) -> None:
        """Write what was filled in to the disk."""
        if isinstance(self._data, np.memmap):
            self._data.flush()
