"""inshop: the In-shop Clothes Retrieval benchmark of DeepFashion, where queries and gallery are sets of their own.

The archive is met in many foldings. All of them give one table: paths are relative to the folder of the images, wherever it lies.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from see_tune.data import DATASETS
from see_tune.data.annotations import Line, check_counts, fields, find_layout, is_inside, number, read_lines, unknown_layout
from see_tune.data.table import TEST, TRAIN, ImageTable, build_table
from see_tune.errors import DatasetError
from see_tune.wording import counted

LAYOUTS = (
    "Inshop_Clothes/{Eval/list_eval_partition.txt, Img/img/WOMEN/...}",
    "In-shop Clothes Retrieval Benchmark/{Eval/list_eval_partition.txt, Img/WOMEN/...}",
    "ROOT/{Eval/list_eval_partition.txt, img/WOMEN/...}",
    "ROOT/{list_eval_partition.txt, img/WOMEN/... or img_highres/WOMEN/...}",
)
COUNTS = {TRAIN: (25_882, 3_997), TEST: (14_218 + 12_612, 3_985)}
QUERIES = 14_218
COLUMNS = "image_name item_id evaluation_status"
_PARTITION = "list_eval_partition.txt"
_IMAGE_FOLDERS = ("Img/img", "Img", "img", "Img/img_highres", "img_highres")
_STATUSES = ("train", "query", "gallery")


def read(root: Path, *, allow_partial: bool = False) -> ImageTable:
    """In-shop Clothes under `root`, in the order of list_eval_partition.txt. Training rows are query and gallery both.

    Raises:
        DatasetError: another layout, a damaged partition file, or counts that differ from the published ones.
    """
    found = find_layout(root, (f"Eval/{_PARTITION}", _PARTITION))
    if not found:
        raise unknown_layout("inshop", root, LAYOUTS, DATASETS["inshop"].source)
    base, marker = found
    rows = [_row(line) for line in _body(base / marker)]
    statuses = [status for _, _, status in rows]
    table = build_table(
        "inshop",
        _image_folder(base),
        [path for path, _, _ in rows],
        [item for _, item, _ in rows],
        [TRAIN if status == "train" else TEST for status in statuses],
        query=[status != "gallery" for status in statuses],
        gallery=[status != "query" for status in statuses],
    )
    return _check_queries(check_counts(table, COUNTS, allow_partial=allow_partial), allow_partial=allow_partial)


def _body(file: Path) -> list[Line]:
    """The lines below the count and the header, as many as the count says."""
    lines = read_lines(file)
    if len(lines) < 2 or lines[1][1].split() != COLUMNS.split():
        raise DatasetError(
            f"{file} does not begin with a count and the header `{COLUMNS}`. It is not the published file: unpack it again"
        )
    announced = number(lines[0][1], lines[0][0])
    body = lines[2:]
    if len(body) != announced:
        raise DatasetError(
            f"{file} announces {counted(announced, 'image')} and lists {len(body):,}. It is cut short: unpack the archive again"
        )
    return body


def _row(line: Line) -> tuple[str, str, str]:
    path, item, status = fields(line, COLUMNS)
    if status not in _STATUSES:
        raise DatasetError(f"{line[0]}: status {status!r} is none of {', '.join(_STATUSES)}. Unpack the archive again")
    if not is_inside(path):
        raise DatasetError(f"{line[0]}: {path!r} lies outside of the dataset's root. The file is not the published one")
    return path.removeprefix("img/"), item, status


def _image_folder(base: Path) -> Path:
    """The folder that holds WOMEN/ and MEN/; where there is none, the archive's own, so that a check names what is missing."""
    for folder in _IMAGE_FOLDERS:
        if any((base / folder / who).is_dir() for who in ("WOMEN", "MEN")):
            return base / folder
    return base / _IMAGE_FOLDERS[0]


def _check_queries(table: ImageTable, *, allow_partial: bool) -> ImageTable:
    queries = int(np.sum(table.is_query[table.rows(TEST)]))
    if queries == QUERIES:
        return table
    message = f"expected {counted(QUERIES, 'query')}, found {queries:,}"
    if allow_partial:
        return replace(table, notes=(*table.notes, message))
    raise DatasetError(f"{table.place}: {message}. Unpack the archive again, or accept it with dataset.allow_partial: true")
