"""The decoded cache: each image decoded and resized once per node, and shared by all trials there through one memory-mapped file.

What it changes: training crops are cut from the image at `resize_size` (its shorter side; proportions kept, nothing cut off)
instead of from the file at its full size. The same area is shown; a crop of a small part of a large photograph is blurrier
than it would be without the cache, because it is enlarged from fewer pixels. Its borders lie on whole pixels, and torch resizes
it instead of Pillow (see `Preprocessing.crop_decoded`), which is what makes it fast. Images as they are evaluated are the same
to the last bit.

What it holds: ``<cache>/decoded-<key>/pixels.npy`` and ``pixels.shapes.npy`` (see pixels.py). The key covers names, sizes
and times of the files, the size and the interpolation: a changed dataset gets a cache of its own, and the old one counts
against the limit.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from see_tune.data.inspection import Progress, files_key
from see_tune.data.pictures import open_rgb, upright_size
from see_tune.data.pixels import Pixels, shapes_file
from see_tune.data.table import ImageTable
from see_tune.data.transforms import Preprocessing, resize_shorter, resized_size
from see_tune.errors import DatasetError

_GB = 1e9
_PREFIX = "decoded-"


def cached_table(
    table: ImageTable,
    *,
    cache: Path,
    resize_size: int,
    limit_gb: float,
    interpolation: str = "bicubic",
    threads: int | None = None,
    progress: Progress | None = None,
) -> ImageTable:
    """The table with `pixels` set to its decoded cache, built if it is not there yet; a table with pixels is returned as it is.

    Of several processes that ask at once, one builds and the others wait for it.

    resize_size, interpolation: those of the Preprocessing that will read it.
    limit_gb: GB (1e9 bytes) that all decoded caches in `cache` may take together.
    threads: that decode; None: one a core.

    Raises:
        DatasetError: an image does not decode, or the cache would pass the limit or does not fit the disk.
    """
    if table.pixels is not None:
        return table
    folder = cache / f"{_PREFIX}{files_key(table)}-{resize_size}-{interpolation}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                _build(table, folder, resize_size, limit_gb, interpolation, threads or os.cpu_count() or 1, progress)
    return replace(table, pixels=folder / "pixels.npy", pixel_rows=None)


def _build(
    table: ImageTable,
    folder: Path,
    resize_size: int,
    limit_gb: float,
    interpolation: str,
    threads: int,
    progress: Progress | None,
) -> None:
    with ThreadPoolExecutor(threads) as pool:
        sizes = pool.map(lambda row: resized_size(upright_size(table.file(row)), resize_size), range(len(table)))
        shapes = np.array([(height, width) for width, height in sizes], np.int64)
    _check_room(table, folder, int(shapes.prod(axis=1).sum()) * 3, limit_gb)
    temporary = Path(tempfile.mkdtemp(prefix=f"building-{folder.name}", dir=folder.parent))
    try:
        _fill(table, temporary / "pixels.npy", shapes, resize_size, interpolation, threads, progress)
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_room(table: ImageTable, folder: Path, size: int, limit_gb: float) -> None:
    others = {other: _bytes_in(other) for other in folder.parent.glob(f"{_PREFIX}*/")}
    if size + sum(others.values()) > limit_gb * _GB:
        present = "".join(f"\n  {held / _GB:.2f} GB in {other}" for other, held in others.items())
        raise DatasetError(
            f"the decoded cache of {table.name} takes {size / _GB:.2f} GB; "
            "with what is there already it would pass data.cache_limit_gb "
            f"{limit_gb:g}.{present}\nRaise data.cache_limit_gb, remove a cache that no study reads, or set data.cache: false"
        )
    free = shutil.disk_usage(folder.parent).free
    if size > free:
        raise DatasetError(
            f"the decoded cache of {table.name} takes {size / _GB:.2f} GB and {folder.parent} has {free / _GB:.2f} GB left. "
            "Free some, put the home folder on a larger disk (--home), or set data.cache: false"
        )


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _fill(
    table: ImageTable,
    file: Path,
    shapes: NDArray[np.int64],
    resize_size: int,
    interpolation: str,
    threads: int,
    progress: Progress | None,
) -> None:
    total = int(shapes.prod(axis=1).sum()) * 3
    np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=(total,)).flush()
    np.save(shapes_file(file), shapes)
    pixels = Pixels(file, writable=True)
    resampling = Preprocessing(1, resize_size, interpolation=interpolation).resampling

    def decode(row: int) -> None:
        pixels[row][:] = np.asarray(resize_shorter(open_rgb(table.file(row)), resize_size, resampling))

    with ThreadPoolExecutor(threads) as pool:
        for done, _ in enumerate(pool.map(decode, range(len(table))), 1):
            if progress:
                progress(done, len(table))
    pixels.flush()
