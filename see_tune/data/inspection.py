"""What is wrong with a dataset, before a training finds out: images that do not decode, twins on both sides of the split.

Preflight and ``on_corrupt: skip`` decode every image once per state of the files; what failed is remembered in the cache folder
under the root and the names, sizes and times of the files, so that the next study does not decode them again. `see-tune
datasets check` decodes whatever is remembered, as a file can rot and keep its size and time, and remembers what it found.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from PIL import Image

from see_tune.data.pictures import Images, open_rgb
from see_tune.data.pixels import Pixels
from see_tune.data.splits import MIN_CLASSES, SplitKind, split_table
from see_tune.data.table import SPLITS, TEST, TRAIN, ImageTable
from see_tune.errors import DatasetError
from see_tune.wording import counted

Progress = Callable[[int, int], None]  # images done, images in all
_THREADS = 8  # decoding releases the interpreter's lock; reading waits for the disk
_NAMED = 5  # how many of many are named in a sentence


@dataclass(frozen=True)
class TableCheck:
    """What `check_table` found; `problems` is empty when nothing is wrong.

    images, classes: how many of each split.
    smallest, largest: a class's name and its number of images.
    undecodable: the errors of the images that do not decode, in row order.
    straddling: groups of paths whose files hold the same bytes, on both sides of the split.
    notes: the table's own, that it has no test classes, and why a search would be refused.
    """

    name: str
    root: Path
    fingerprint: str
    images: dict[str, int]
    classes: dict[str, int]
    smallest: tuple[str, int]
    largest: tuple[str, int]
    undecodable: tuple[str, ...]
    straddling: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]


def check_table(table: ImageTable, *, cache: Path, duplicates: bool = True, progress: Progress | None = None) -> TableCheck:
    """Decode every image and count; with `duplicates` also compare the contents of training and test images.

    cache: where the list of undecodable images is kept.
    progress: called with (done, total) after each image.
    """
    undecodable = tuple(find_undecodable(table, cache=cache, progress=progress, anew=True).values())
    straddling = _find_straddling(table) if duplicates else ()
    problems = tuple(_problems(table, undecodable, straddling))
    counts = np.bincount(table.labels, minlength=len(table.class_names))
    low, high = int(np.argmin(counts)), int(np.argmax(counts))
    return TableCheck(
        name=table.name,
        root=table.root,
        fingerprint=table.fingerprint(),
        images={split: len(table.rows(split)) for split in SPLITS},
        classes={split: len(np.unique(table.labels[table.rows(split)])) for split in SPLITS},
        smallest=(table.class_names[low], int(counts[low])),
        largest=(table.class_names[high], int(counts[high])),
        undecodable=undecodable,
        straddling=straddling,
        notes=(*table.notes, *_untested(table), *_unsearchable(table, problems)),
        problems=problems,
    )


def find_undecodable(table: ImageTable, *, cache: Path, progress: Progress | None = None, anew: bool = False) -> dict[int, str]:
    """Row -> why its image does not decode, ascending. Decodes each image once, however many processes ask at the same time.

    anew: decode what was decoded before, too.
    """
    if table.pixels is not None:
        return {}
    memory = cache / f"undecodable-{files_key(table)}.json"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{memory}.lock"):
        if memory.is_file() and not anew:
            return {int(row): error for row, error in json.loads(memory.read_text(encoding="utf-8")).items()}
        failed = _decode_all(table, progress)
        _write_whole(memory, json.dumps(failed))
    return failed


def drop_undecodable(table: ImageTable, *, cache: Path, progress: Progress | None = None) -> ImageTable:
    """The table without the rows whose images do not decode, and a note that says how many there were."""
    failed = find_undecodable(table, cache=cache, progress=progress)
    if not failed:
        return table
    if len(failed) == len(table):
        raise DatasetError(f"none of the {len(table):,} images of {table.name} decodes. The first: {next(iter(failed.values()))}")
    kept = np.setdiff1d(np.arange(len(table)), np.fromiter(failed, np.int64))
    named = ", ".join(table.paths[row] for row in list(failed)[:_NAMED])
    note = f"{undecodable_of(len(failed), table)}, left out (on_corrupt: skip): {named}"
    return replace(table.take(kept.astype(np.int64)), notes=(*table.notes, note))


def files_key(table: ImageTable) -> str:
    """16 hex digits over the table, its root and the sizes and times of its files: changes when an image is replaced.

    A copy under another root has a key of its own: what one file holds says nothing of its copy that was cut short.
    """
    digest = hashlib.sha256(f"{table.fingerprint()}\n{table.root.resolve()}\n".encode())
    for row in range(len(table)):
        try:
            status = table.file(row).stat()
            digest.update(f"{status.st_size} {status.st_mtime_ns}\n".encode())
        except OSError:
            digest.update(b"absent\n")
    return digest.hexdigest()[:16]


def undecodable_of(number: int, table: ImageTable) -> str:
    """``3 of 1,200 images do not decode``"""
    of = f"of {len(table):,} images"
    return counted(number, f"{of} does not decode", f"{of} do not decode")


def contact_sheet(table: ImageTable, rows: NDArray[np.int64], *, columns: int = 10, side: int = 128) -> Image.Image:
    """The images of `rows`, each fitted into a square of `side` pixels, `columns` a line, on white.

    Raises:
        DatasetError: one does not decode.
    """
    images = Images(table)
    lines = -(-len(rows) // columns)
    sheet = Image.new("RGB", (columns * side, max(lines, 1) * side), "white")
    for place, row in enumerate(rows.tolist()):
        picture = images[row].copy()
        picture.thumbnail((side, side))
        left, top = place % columns * side, place // columns * side
        sheet.paste(picture, (left + (side - picture.width) // 2, top + (side - picture.height) // 2))
    return sheet


def _problems(table: ImageTable, undecodable: tuple[str, ...], straddling: tuple[tuple[str, ...], ...]) -> Iterable[str]:
    if undecodable:
        yield f"{undecodable_of(len(undecodable), table)}:{_listed(undecodable)}"
    if straddling:
        twins = [" = ".join(paths) for paths in straddling]
        yield f"{counted(len(straddling), 'picture is', 'pictures are')} both in training and in test:{_listed(twins)}"
    if (training := _training_classes(table)) < MIN_CLASSES:
        yield f"training classes: {training}; a ranking needs at least 2, and 4 to hold some of them out"
    if (table.split == TEST).any() and (error := _refusal(table, "test")) is not None:
        yield error


def _training_classes(table: ImageTable) -> int:
    return len(np.unique(table.labels[table.split == TRAIN]))


def _refusal(table: ImageTable, kind: SplitKind) -> str | None:
    try:
        split_table(table, kind=kind)
    except DatasetError as error:
        return str(error)
    return None


def _unsearchable(table: ImageTable, problems: tuple[str, ...]) -> Iterator[str]:
    """A dataset that can be measured on may still have too little to hold out of its training classes."""
    if _training_classes(table) < MIN_CLASSES:
        return  # a problem, which says so
    if (error := _refusal(table, "fraction")) is not None and error not in problems:
        yield f"a search would be refused: {error}"


def _untested(table: ImageTable) -> tuple[str, ...]:
    return () if len(table.rows(TEST)) else ("no test classes: a study of it needs final: none, and nothing of it is registered",)


def _listed(items: Sequence[str]) -> str:
    more = f"\n  and {len(items) - _NAMED:,} more" if len(items) > _NAMED else ""
    return "".join(f"\n  {item}" for item in items[:_NAMED]) + more


def _decode_all(table: ImageTable, progress: Progress | None) -> dict[int, str]:
    failed: dict[int, str] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for row, error in enumerate(pool.map(lambda row: _error_of(table.file(row)), range(len(table)))):
            if error is not None:
                failed[row] = error
            if progress:
                progress(row + 1, len(table))
    return failed


def _error_of(file: Path) -> str | None:
    try:
        open_rgb(file)
    except DatasetError as error:
        return str(error)
    return None


def _find_straddling(table: ImageTable) -> tuple[tuple[str, ...], ...]:
    """Groups of rows with the same content of which some are test rows and some are not; only files of one size are read."""
    is_test = table.split == TEST
    pixels = Pixels(table.pixels) if table.pixels is not None else None
    found = []
    for same_size in _straddling(range(len(table)), is_test, lambda row: _size(table, row)):
        for twins in _straddling(same_size, is_test, lambda row: _content(table, pixels, row)):
            found.append(tuple(table.paths[row] for row in twins))
    return tuple(sorted(found))


def _straddling(rows: Iterable[int], is_test: NDArray[np.bool_], key: Callable[[int], str]) -> Iterator[list[int]]:
    """The groups of rows with one key that have members on both sides."""
    groups: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return (group for group in groups.values() if is_test[group].any() and not is_test[group].all())


def _size(table: ImageTable, row: int) -> str:
    if table.pixels is not None:
        return "decoded"
    try:
        return str(table.file(row).stat().st_size)
    except OSError:
        return f"absent, like none other: {row}"


def _content(table: ImageTable, pixels: Pixels | None, row: int) -> str:
    content = table.file(row).read_bytes() if pixels is None else pixels[table.pixel_row(row)].tobytes()
    return hashlib.sha256(content).hexdigest()


def _write_whole(file: Path, text: str) -> None:
    """The file appears whole or not at all."""
    handle, temporary = tempfile.mkstemp(prefix=file.name, dir=file.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    Path(temporary).replace(file)
