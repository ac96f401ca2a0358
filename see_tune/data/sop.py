"""sop: Stanford Online Products. Ebay_train.txt's classes train, Ebay_test.txt's test."""

from __future__ import annotations

from pathlib import Path

from see_tune.data import DATASETS
from see_tune.data.annotations import check_counts, fields, find_layout, is_inside, read_lines, unknown_layout
from see_tune.data.table import TEST, TRAIN, ImageTable, build_table
from see_tune.errors import DatasetError

LAYOUTS = ("ROOT/{Ebay_train.txt, Ebay_test.txt, bicycle_final/...}, ROOT being Stanford_Online_Products or its parent",)
COUNTS = {TRAIN: (59_551, 11_318), TEST: (60_502, 11_316)}
COLUMNS = "image_id class_id super_class_id path"


def read(root: Path, *, allow_partial: bool = False) -> ImageTable:
    """Stanford Online Products under `root`, training images first.

    Raises:
        DatasetError: another layout, damaged annotation files, or counts that differ from the published ones.
    """
    found = find_layout(root, ("Ebay_train.txt",))
    if not found:
        raise unknown_layout("sop", root, LAYOUTS, DATASETS["sop"].source)
    base, _ = found
    paths: list[str] = []
    classes: list[str] = []
    split: list[str] = []
    for part, file in ((TRAIN, "Ebay_train.txt"), (TEST, "Ebay_test.txt")):
        rows = _rows(base / file)
        paths += [path for path, _ in rows]
        classes += [label for _, label in rows]
        split += [part] * len(rows)
    table = build_table("sop", base, paths, classes, split)
    return check_counts(table, COUNTS, allow_partial=allow_partial)


def _rows(file: Path) -> list[tuple[str, str]]:
    lines = read_lines(file)
    if not lines or lines[0][1].split() != COLUMNS.split():
        raise DatasetError(
            f"{file} does not begin with the header `{COLUMNS}`. It is not the published file: unpack the archive again"
        )
    rows = []
    for line in lines[1:]:
        _, label, _, path = fields(line, COLUMNS)
        if not is_inside(path):
            raise DatasetError(f"{line[0]}: {path!r} lies outside of the dataset's root. The file is not the published one")
        rows.append((path, label))
    return rows
