"""manifest: one's own pictures, listed in a CSV with the columns ``path,label`` and, where wanted, ``split``, ``is_query``,
``is_gallery``.

Paths are relative to the CSV's folder and stay inside it. Labels are any text or number; they are compared as text.
`write_split_manifest` makes such a file out of a folder of classes: a three-way class-disjoint split, saved, so that it can
be shared.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

import numpy as np

from see_tune.data.annotations import is_inside
from see_tune.data.folder import read as read_folder
from see_tune.data.table import SPLITS, TEST, TRAIN, VALIDATION, ImageTable, build_table
from see_tune.errors import DatasetError
from see_tune.wording import counted

LAYOUTS = ("a CSV file, or ROOT/manifest.csv, with path,label[,split][,is_query][,is_gallery]; paths relative to its folder",)
_REQUIRED, _OPTIONAL = ("path", "label"), ("split", "is_query", "is_gallery")
_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_MIN_CLASSES = 2
_Row = Mapping[str, str]
_T = TypeVar("_T")


def read(root: Path, *, allow_partial: bool = False) -> ImageTable:
    """The images that the CSV `root`, or `root`/manifest.csv, lists, in its order.

    Raises:
        DatasetError: no such file, columns that are missing or unknown, an empty or repeated path, a path outside of the
            CSV's folder, or an unknown split.
    """
    file = root / "manifest.csv" if root.is_dir() else root
    if not file.is_file():
        raise DatasetError(
            f"there is no {file}. A manifest is {LAYOUTS[0]}; see-tune datasets split writes one for a folder of classes"
        )
    rows = _read_rows(file)
    paths = [PurePosixPath(row["path"].replace("\\", "/")).as_posix() for row in rows.values()]
    _check_paths(file, list(rows), paths)
    return build_table(
        "manifest",
        file.parent,
        paths,
        [_label(where, row) for where, row in rows.items()],
        [_choice(where, row, "split", {name: name for name in SPLITS}, TRAIN) for where, row in rows.items()],
        query=[_choice(where, row, "is_query", _BOOLEANS, True) for where, row in rows.items()],
        gallery=[_choice(where, row, "is_gallery", _BOOLEANS, True) for where, row in rows.items()],
    )


def write_split_manifest(root: Path, out: Path, *, seed: int = 0, fractions: tuple[float, float] = (0.2, 0.3)) -> ImageTable:
    """Write the CSV `out`: the class folders of `root`, each class drawn by `seed` to train, validation or test; return its
    table.

    fractions: the parts of the classes that become validation and test classes; each gets at least two.

    Raises:
        DatasetError: too few classes, `root` has splits already, `out` is there already, does not lie in `root` or in a folder
            above it or cannot be written, or a name does not survive a manifest (blanks at its ends, a backslash).
        ValueError: fractions that leave no training classes.
    """
    table = read_folder(root.resolve())
    if (table.split != TRAIN).any():
        named = ", ".join(f"{part}/" for part in dict.fromkeys(path.partition("/")[0] for path in table.paths))
        raise DatasetError(f"{root} has splits of its own ({named}). Read it as it is: dataset.name: folder")
    base = out.resolve().parent
    if not root.resolve().is_relative_to(base):
        raise DatasetError(
            f"{out} would list pictures outside of its own folder. Write it into {root} or a folder above, "
            "so that both move together"
        )
    if out.is_file():
        raise DatasetError(
            f"--out {out} is there already, and what was measured on its split could not be measured again once it is another: "
            "name another file, or remove that one first"
        )
    split = _draw_splits(table, seed, fractions)
    files = [table.file(row).relative_to(base).as_posix() for row in range(len(table.labels))]
    names = [table.class_names[label] for label in table.labels]
    unfinished = out.resolve().with_name(f".{out.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(
                [("path", "label", "split"), *((f, n, split[n]) for f, n in zip(files, names, strict=True))]
            )
        _check_survives(read(unfinished), files, names)
        unfinished.replace(out.resolve())
    except OSError as error:
        raise DatasetError(
            f"--out {out} cannot be written ({error.strerror or error}); name a file in a folder of yours"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return read(out.resolve())


def _check_survives(table: ImageTable, files: list[str], names: list[str]) -> None:
    """Raises: DatasetError where the manifest, read back, names another file or class than was written."""
    for row, (file, name) in enumerate(zip(files, names, strict=True)):
        if (table.paths[row], table.class_names[table.labels[row]]) != (file, name):
            raise DatasetError(
                f"{file!r} of class {name!r} would be another in a manifest, which knows no blanks at the ends of a name and no "
                "backslash; rename it"
            )


def _draw_splits(table: ImageTable, seed: int, fractions: tuple[float, float]) -> dict[str, str]:
    if min(fractions) <= 0 or sum(fractions) >= 1:
        raise ValueError(f"fractions {fractions}: both above 0, together below 1; the rest of the classes train")
    names = list(table.class_names)
    if len(names) < 3 * _MIN_CLASSES:
        raise DatasetError(
            f"{table.root} has {counted(len(names), 'class')}; train, validation and test need at least {_MIN_CLASSES} each, "
            f"{3 * _MIN_CLASSES} in all. "
            "Add classes, or end the study without test classes: final: none"
        )
    validation, test = (max(_MIN_CLASSES, round(part * len(names))) for part in fractions)
    if validation + test > len(names) - _MIN_CLASSES:
        raise DatasetError(
            f"fractions {fractions} of {counted(len(names), 'class')} leave fewer than {_MIN_CLASSES} training "
            "classes. Give smaller ones"
        )
    order = np.random.default_rng(np.random.SeedSequence(seed % 2**64)).permutation(len(names))
    split = dict.fromkeys(names, TRAIN)
    split.update((names[number], VALIDATION) for number in order[:validation])
    split.update((names[number], TEST) for number in order[validation : validation + test])
    return split


def _read_rows(file: Path) -> dict[str, _Row]:
    """ "file:line" -> the row's columns, stripped."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            _check_columns(file, reader.fieldnames or ())
            rows: dict[str, _Row] = {}
            for row in reader:
                where = f"{file}:{reader.line_num}"
                if None in row or None in row.values():
                    raise DatasetError(
                        f"{where}: as many fields as the header has columns are wanted; quote a path that holds a comma"
                    )
                rows[where] = {name: value.strip() for name, value in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(
            f"{file} can't be read as CSV ({error}). A manifest is UTF-8 text with a header: {LAYOUTS[0]}"
        ) from error
    if not rows:
        raise DatasetError(f"{file} lists no image. Below its header stands one line an image")
    return rows


def _check_columns(file: Path, columns: object) -> None:
    names = [str(name) for name in columns] if isinstance(columns, (list, tuple)) else []
    missing = [name for name in _REQUIRED if name not in names]
    unknown = [name for name in names if name not in (*_REQUIRED, *_OPTIONAL)]
    if missing or unknown or len(set(names)) < len(names):
        cause = f"no column {missing[0]!r}" if missing else f"an unknown column {unknown[0]!r}" if unknown else "a column twice"
        raise DatasetError(
            f"{file}:1: {cause}; the header is {','.join(names) or 'empty'}. "
            f"It has {' and '.join(_REQUIRED)}, and may have {', '.join(_OPTIONAL)}{_hint(names)}"
        )


def _hint(names: list[str]) -> str:
    """What the header of a foreign table was probably meant to be."""
    for separator, word in ((";", "semicolons"), ("\t", "tabs")):
        if any(separator in name for name in names):
            return f". Its columns are separated by {word}: write them with commas"
    meant = {name: name.strip().lower() for name in names if name not in (*_REQUIRED, *_OPTIONAL)}
    renamed = [f"{name!r} is to be {right}" for name, right in meant.items() if right in (*_REQUIRED, *_OPTIONAL)]
    return f". Names are written exactly so: {', '.join(renamed)}" if renamed else ""


def _check_paths(file: Path, wheres: list[str], paths: list[str]) -> None:
    first: dict[str, str] = {}
    for where, path in zip(wheres, paths, strict=True):
        if path == ".":
            raise DatasetError(f"{where}: an empty path, or that of the CSV's folder itself. Each row names an image")
        if "\0" in path or not is_inside(path):
            raise DatasetError(
                f"{where}: path {path!r} does not stay in {file.parent}. Paths are relative to the CSV's folder, without .."
            )
        if path in first:
            raise DatasetError(f"{where}: {path!r} stands in {first[path]} already. An image is listed once")
        first[path] = where


def _label(where: str, row: _Row) -> str:
    if not row["label"]:
        raise DatasetError(f"{where}: an empty label. Each image has one, any text or number")
    return row["label"]


def _choice(where: str, row: _Row, column: str, choices: Mapping[str, _T], default: _T) -> _T:
    """The value of an optional column; an absent column or an empty field is the default."""
    value = row.get(column, "").lower()
    if not value:
        return default
    if value not in choices:
        raise DatasetError(f"{where}: {column} {value!r} is none of {', '.join(choices)}")
    return choices[value]
