"""cars196: Stanford Cars. Classes 1-98 train, 99-196 test.

Both annotation layouts divide the images of every class for classification; here both halves are joined and divided by class.
Classes are named by their number: only one of the layouts carries names, and a dataset's identity must not depend on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from see_tune.data import DATASETS
from see_tune.data.annotations import check_counts, find_layout, is_inside, subfolders, unknown_layout
from see_tune.data.table import TEST, TRAIN, ImageTable, build_table
from see_tune.errors import DatasetError

LAYOUTS = (
    "ROOT/{cars_annos.mat, car_ims/000001.jpg, ...}",
    "ROOT/{devkit/cars_train_annos.mat, cars_test_annos_withlabels.mat (in devkit/ or ROOT), cars_train/, cars_test/}",
)
COUNTS = {TRAIN: (8_054, 98), TEST: (8_131, 98)}
LAST_TRAINING_CLASS = 98
_TRAIN_FILE, _TEST_FILE, _UNLABELLED = "cars_train_annos.mat", "cars_test_annos_withlabels.mat", "cars_test_annos.mat"
_DEVKITS = ("devkit/", "car_devkit/devkit/", "cars_devkit/devkit/", "cars_devkit/", "")


def read(root: Path, *, allow_partial: bool = False) -> ImageTable:
    """Stanford Cars under `root`, in the order of its annotation files.

    Raises:
        DatasetError: another layout, damaged or unlabelled annotation files, or counts that differ from the published ones.
    """
    one_file = find_layout(root, ("cars_annos.mat", *(f"{devkit}cars_annos.mat" for devkit in _DEVKITS[:-1])))
    two_files = find_layout(root, [devkit + _TRAIN_FILE for devkit in _DEVKITS])
    if one_file:
        base, marker = one_file
        paths, classes = _columns(base / marker, "relative_im_path", "class")
        files = paths
    elif two_files:
        base, marker = two_files
        paths, classes, files = _both_halves(base, base / marker)
    else:
        raise unknown_layout("cars196", root, LAYOUTS, DATASETS["cars196"].source)
    table = build_table(
        "cars196",
        base,
        paths,
        [f"{label:03d}" for label in classes],
        [TRAIN if label <= LAST_TRAINING_CLASS else TEST for label in classes],
        files=files,
    )
    return check_counts(table, COUNTS, allow_partial=allow_partial)


def _both_halves(base: Path, train_file: Path) -> tuple[list[str], list[int], list[str]]:
    """Paths, classes and where the files lie, of cars_train and then cars_test."""
    paths: list[str] = []
    classes: list[int] = []
    files: list[str] = []
    for folder, file in (("cars_train", train_file), ("cars_test", _labelled_test_file(base, train_file.parent))):
        names, labels = _columns(file, "fname", "class")
        # Archives from the usual mirror unpack to cars_train/cars_train/.
        where = f"{folder}/{folder}" if (base / folder / folder).is_dir() else folder
        paths += [f"{folder}/{name}" for name in names]
        files += [f"{where}/{name}" for name in names]
        classes += labels
    return paths, classes, files


def _labelled_test_file(base: Path, devkit: Path) -> Path:
    folders = (devkit, base, *subfolders(base))
    for folder in folders:
        if (folder / _TEST_FILE).is_file():
            return folder / _TEST_FILE
    plain = next((folder / _UNLABELLED for folder in folders if (folder / _UNLABELLED).is_file()), None)
    cause = f"{plain} has no labels" if plain else f"{_TEST_FILE} is neither in {devkit} nor in {base}"
    raise DatasetError(
        f"{cause}. The split by class needs the labels of both halves: add {_TEST_FILE}, "
        "published beside the devkit and kept by the mirrors"
    )


def _columns(path: Path, name_field: str, class_field: str) -> tuple[list[str], list[int]]:
    """Image names and 1-based classes of an annotation file, its fields taken by name: their order differs between the files."""
    annotations = _load(path)
    present = annotations.dtype.names or ()
    missing = [field for field in (name_field, class_field) if field not in present]
    if missing:
        raise DatasetError(
            f"{path} has no field {missing[0]!r}, only {', '.join(present) or 'none'}. "
            f"An annotation file has {name_field} and {class_field}: take it from the devkit again"
        )
    names = [str(np.squeeze(name)) for name in annotations[name_field]]
    outside = next((name for name in names if not is_inside(name)), None)
    if outside is not None:
        raise DatasetError(f"{path}: image {outside!r} lies outside of the dataset's root. The file is not the published one")
    return names, _classes(path, annotations[class_field])


def _classes(path: Path, column: NDArray[Any]) -> list[int]:
    try:
        return [int(np.squeeze(label)) for label in column]
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{path}: a class is no number ({error}). Take the file from the devkit again") from error


def _load(path: Path) -> NDArray[np.void]:
    from scipy.io import loadmat

    try:
        annotations = np.atleast_1d(np.squeeze(loadmat(path, variable_names=["annotations"])["annotations"]))
    except Exception as error:  # scipy raises anything on foreign bytes
        raise DatasetError(
            f"{path} can't be read as MATLAB annotations ({type(error).__name__}: {error}). Take the file from the devkit again"
        ) from error
    return annotations
