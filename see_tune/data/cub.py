"""cub200: CUB-200-2011, birds. Classes 1-100 train, 101-200 test.

The archive's own train_test_split.txt divides the images of every class; it is no split by class, and numbers on it
do not compare with the field's, so it is not read.
"""

from __future__ import annotations

from pathlib import Path

from see_tune.data import DATASETS
from see_tune.data.annotations import check_counts, fields, find_layout, is_inside, number, read_lines, unknown_layout
from see_tune.data.table import TEST, TRAIN, ImageTable, build_table
from see_tune.errors import DatasetError
from see_tune.wording import counted

LAYOUTS = ("ROOT/{images.txt, image_class_labels.txt, images/<class>/<image>}, ROOT being CUB_200_2011 or its parent",)
COUNTS = {TRAIN: (5_864, 100), TEST: (5_924, 100)}
LAST_TRAINING_CLASS = 100


def read(root: Path, *, allow_partial: bool = False) -> ImageTable:
    """CUB-200-2011 under `root`, in the order of images.txt.

    Raises:
        DatasetError: another layout, damaged annotation files, or counts that differ from the published ones.
    """
    base = _find_base(root)
    images = dict(_two_columns(base / "images.txt", "image_id path"))
    labels = dict(_two_columns(base / "image_class_labels.txt", "image_id class_id"))
    if images.keys() != labels.keys():
        odd = sorted(images.keys() ^ labels.keys(), key=lambda image: (len(image), image))
        raise DatasetError(
            f"{base}: images.txt and image_class_labels.txt differ in {counted(len(odd), 'image')} (first: image {odd[0]}). "
            "Both list the same 11,788: unpack the archive again"
        )
    kept = [image for image, path in images.items() if not path.rpartition("/")[2].startswith("._")]
    classes = [number(labels[image], f"{base / 'image_class_labels.txt'}, image {image}") for image in kept]
    folders = {label: images[image].partition("/")[0] for image, label in zip(kept, classes, strict=True)}
    table = build_table(
        "cub200",
        base,
        [f"images/{images[image]}" for image in kept],
        [folders[label] for label in classes],
        [TRAIN if label <= LAST_TRAINING_CLASS else TEST for label in classes],
    )
    return check_counts(table, COUNTS, allow_partial=allow_partial)


def _find_base(root: Path) -> Path:
    found = find_layout(root, ("images.txt",))
    if found:
        return found[0]
    if find_layout(root, ("lists/files.txt", "files.txt")):
        raise DatasetError(
            f"{root} looks like CUB-200 of 2010 (files.txt), another dataset with other images. The field reports CUB-200-2011: "
            f"{DATASETS['cub200'].source}"
        )
    raise unknown_layout("cub200", root, LAYOUTS, DATASETS["cub200"].source)


def _two_columns(file: Path, names: str) -> list[tuple[str, str]]:
    rows = [(line, fields(line, names)) for line in read_lines(file)]
    for (where, _), (_, value) in rows:
        if not is_inside(value):
            raise DatasetError(f"{where}: {value!r} lies outside of the dataset's root. The file is not the published one")
    first: dict[str, str] = {}
    for (where, _), (image, _) in rows:
        if image in first:
            raise DatasetError(f"{where}: image {image} stands in {first[image]} already. The file is not the published one")
        first[image] = where
    return [(image, value) for _, (image, value) in rows]
