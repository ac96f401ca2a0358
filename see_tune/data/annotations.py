"""Annotation files and archive layouts: what the readers of published datasets share.

A reader finds its files with `find_layout`, reads them line by line with `read_lines`, and checks what came out with
`check_counts`. Whatever is missing is named: the path, the layouts known, where the data is had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from see_tune.data.table import TEST, TRAIN, VALIDATION, ImageTable
from see_tune.errors import DatasetError
from see_tune.wording import counted

Counts = tuple[int, int]  # images, classes
Line = tuple[str, str]  # "file:number", text
_SPLIT_WORDS = {TRAIN: "training", VALIDATION: "validation", TEST: "test"}


def find_layout(root: Path, markers: Sequence[str]) -> tuple[Path, str] | None:
    """(folder, marker) of the first of `markers` in `root` or in a folder right below it (an archive unpacked as it is)."""
    for folder in (root, *subfolders(root)):
        with _readable(folder):
            for marker in markers:
                if (folder / marker).is_file():
                    return folder, marker
    return None


def subfolders(folder: Path) -> list[Path]:
    """The folders in `folder`, sorted, without hidden ones.

    Raises:
        DatasetError: it can't be listed.
    """
    with _readable(folder):
        return [entry for entry in entries(folder) if entry.is_dir()]


def entries(folder: Path) -> list[Path]:
    """What `folder` holds, sorted, without hidden files, macOS's ``._*`` and ``__MACOSX``.

    Raises:
        DatasetError: it can't be listed.
    """
    with _readable(folder):
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "__MACOSX")))


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DatasetError(
            f"{folder} can't be read ({error.strerror}). A dataset's root is a folder that this user may list and enter: "
            "check dataset.root and its permissions"
        ) from error


def unknown_layout(name: str, root: Path, layouts: Sequence[str], source: str) -> DatasetError:
    """The error of a root in which a reader finds none of the layouts that it knows."""
    found = ", ".join(entry.name for entry in entries(root)[:8]) if root.is_dir() else "not a folder"
    known = "\n".join(f"  known layout {layout}" for layout in layouts)
    return DatasetError(
        f"{root} is not {name} in a layout that is known. It holds: {found or 'nothing'}.\n{known}\n  to be had     {source}"
    )


def read_lines(path: Path) -> list[Line]:
    """The lines of a text file that are not blank, stripped, each with where it stands. CRLF ends and a BOM are taken.

    Raises:
        DatasetError: the file is missing, unreadable or not UTF-8.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{path} can't be read ({error}). It is a text file of the dataset's archive: unpack the archive again"
        ) from error
    return [(f"{path}:{number}", line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def fields(line: Line, names: str) -> list[str]:
    """The fields of a line that has as many as `names` has words, separated by any spaces; the last may hold none.

    Raises:
        DatasetError: another number of fields.
    """
    where, text = line
    parts = text.split()
    if len(parts) != len(names.split()):
        raise DatasetError(
            f"{where}: {text!r} has {counted(len(parts), 'field')}; a line is `{names}`. "
            "The file is damaged: unpack the archive again"
        )
    return parts


def number(text: str, where: str) -> int:
    """An integer field.

    Raises:
        DatasetError: it is none.
    """
    try:
        return int(text)
    except ValueError as error:
        raise DatasetError(f"{where}: {text!r} is no whole number. The file is damaged: unpack the archive again") from error


def is_inside(path: str) -> bool:
    """Whether a relative POSIX path stays under the folder that it is relative to."""
    parts = PurePosixPath(path)
    return bool(path) and not parts.is_absolute() and ".." not in parts.parts


def check_counts(table: ImageTable, expected: Mapping[str, Counts], *, allow_partial: bool) -> ImageTable:
    """The table, if it has the published (images, classes) of each split; with `allow_partial` a difference becomes a note.

    Raises:
        DatasetError: the counts differ.
    """
    wrong = []
    for split, counts in expected.items():
        rows = table.rows(split)
        found = len(rows), len(np.unique(table.labels[rows]))
        if found != counts:
            word = _SPLIT_WORDS[split]
            wanted = f"{counted(counts[0], f'{word} image')} in {counted(counts[1], 'class')}"
            wrong.append(f"expected {wanted}, found {found[0]:,} in {found[1]:,}")
    if not wrong:
        return table
    if allow_partial:
        return replace(table, notes=(*table.notes, *wrong))
    raise DatasetError(
        f"{table.place}: {'; '.join(wrong)}. Numbers on it would not compare with anyone's: complete it, "
        "or accept what is there with dataset.allow_partial: true"
    )
