"""Pictures: image files opened, upright and RGB. Without torch, for those who look at files and train nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from see_tune.data.pixels import Pixels
from see_tune.data.table import ImageTable
from see_tune.errors import DatasetError

_EXIF_ORIENTATION = 0x0112
_EXIF_SIDEWAYS = frozenset({5, 6, 7, 8})


class Images:
    """The images of a table by row, decoded where they are files; opens a pixel file in the process that first reads it."""

    def __init__(self, table: ImageTable) -> None:
        self.table = table
        self._pixels: Pixels | None = None

    def __getitem__(self, row: int) -> Image.Image:
        """The upright RGB image of `row`.

        Raises:
            DatasetError: it does not decode.
        """
        pixels = self._open()
        return open_rgb(self.table.file(row)) if pixels is None else Image.fromarray(pixels[self.table.pixel_row(row)])

    def decoded(self, row: int) -> NDArray[np.uint8] | None:
        """(H, W, 3) of `row` in the decoded cache, without a copy; None for files, and for the glyphs, which are so small
        that a crop of whole pixels would be a coarse one."""
        pixels = self._open()
        return pixels[self.table.pixel_row(row)] if pixels is not None and pixels.of_any_size else None

    def _open(self) -> Pixels | None:
        if self._pixels is None and self.table.pixels is not None:
            self._pixels = Pixels(self.table.pixels)
        return self._pixels


def open_rgb(source: Path | BinaryIO) -> Image.Image:
    """The image at a path or in a stream, upright (EXIF) and RGB: grey, palette, RGBA, CMYK and 16-bit ones included.

    Raises:
        DatasetError: the file is missing, is no image, is truncated, or is a decompression bomb; it names the file.
    """
    with _naming(source), Image.open(source) as image:
        if image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
            return _to_rgb(ImageOps.exif_transpose(image))
        return _to_rgb(image)


def upright_size(path: Path) -> tuple[int, int]:
    """(width, height) of the image at `path` once it is upright, from its header.

    Raises:
        DatasetError: as `open_rgb`, as far as the header shows it.
    """
    with _naming(path), Image.open(path) as image:
        width, height = image.size
        return (height, width) if image.getexif().get(_EXIF_ORIENTATION, 1) in _EXIF_SIDEWAYS else (width, height)


@contextmanager
def _naming(source: Path | BinaryIO) -> Iterator[None]:
    """Whatever a decoder raises, as a DatasetError that names the file."""
    path = source if isinstance(source, Path) else "an image given as bytes"
    try:
        yield
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: no such image; check the path, or where it is listed") from error
    except Image.DecompressionBombError as error:
        raise DatasetError(
            f"{path}: refused, it may be a decompression bomb ({error}). Make the picture smaller, or remove it"
        ) from error
    except Exception as error:  # on foreign bytes a decoder raises anything: OSError, SyntaxError, struct.error, zlib.error, ...
        raise DatasetError(
            f"{path}: does not decode as an image ({type(error).__name__}: {error}); replace it, or remove it"
        ) from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        image.load()
        return image
    if image.mode.startswith("I"):
        # 16-bit grey; .convert alone would clip everything above 255 to white.
        image = Image.fromarray((np.asarray(image, np.int64).clip(0, 65535) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # what Pillow asks for, with a warning, before the palette is dropped
    return image.convert("RGB")
