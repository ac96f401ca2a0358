"""cars196: both annotation layouts, read by field name."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from see_tune.data.cars import read
from see_tune.errors import DatasetError


def write_annotations(
    file: Path, names: Sequence[str], classes: Sequence[int], *, name_field: str, class_field: str = "class"
) -> None:
    kinds = [("bbox_x1", "O"), (class_field, "O"), (name_field, "O"), ("test", "O")]
    records = np.array([(1, label, name, 0) for name, label in zip(names, classes, strict=True)], dtype=kinds)
    file.parent.mkdir(parents=True, exist_ok=True)
    savemat(file, {"annotations": records})


@pytest.fixture
def devkit(shared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(shared / "cars196_annotations", tmp_path / "cars" / "devkit")


def test_the_official_files_give_the_published_counts(devkit: Path) -> None:
    table = read(devkit.parent)
    train, test = table.rows("train"), table.rows("test")
    assert (len(train), len(test)) == (8_054, 8_131)
    assert (len(np.unique(table.labels[train])), len(np.unique(table.labels[test]))) == (98, 98)
    assert {path.partition("/")[0] for path in table.paths} == {"cars_train", "cars_test"}


def test_the_labelled_test_file_may_lie_beside_the_devkit(devkit: Path) -> None:
    before = read(devkit.parent).fingerprint()
    (devkit / "cars_test_annos_withlabels.mat").rename(devkit.parent / "cars_test_annos_withlabels.mat")
    assert read(devkit.parent).fingerprint() == before


def test_nested_folders_of_the_mirror_change_where_files_lie_and_not_the_identity(devkit: Path) -> None:
    before = read(devkit.parent)
    (devkit.parent / "cars_test" / "cars_test").mkdir(parents=True)
    nested = read(devkit.parent)
    assert nested.fingerprint() == before.fingerprint()
    assert nested.file(len(nested) - 1) == devkit.parent / "cars_test" / "cars_test" / "08041.jpg"
    assert nested.file(0) == devkit.parent / "cars_train" / "00001.jpg"


def test_the_unlabelled_test_file_is_named(devkit: Path) -> None:
    (devkit / "cars_test_annos_withlabels.mat").rename(devkit / "cars_test_annos.mat")
    with pytest.raises(DatasetError, match=r"cars_test_annos\.mat has no labels"):
        read(devkit.parent)


def test_one_annotation_file_is_read_by_field_name(tmp_path: Path) -> None:
    names = [f"car_ims/{n:06d}.jpg" for n in range(4)]
    write_annotations(tmp_path / "cars_annos.mat", names, [98, 1, 99, 196], name_field="relative_im_path")
    table = read(tmp_path, allow_partial=True)
    assert table.paths == tuple(names)
    assert table.split.tolist() == ["train", "train", "test", "test"]
    assert table.class_names == ("098", "001", "099", "196")


def test_a_truncated_annotation_file_is_named(devkit: Path) -> None:
    file = devkit / "cars_train_annos.mat"
    file.write_bytes(file.read_bytes()[:5_000])
    with pytest.raises(DatasetError, match=r"cars_train_annos\.mat can't be read as MATLAB annotations"):
        read(devkit.parent)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cars_annos.mat"
    write_annotations(file, ["a.jpg", "b.jpg"], [1, 2], name_field="relative_im_path", class_field="klass")
    with pytest.raises(DatasetError, match="has no field 'class', only bbox_x1, klass, relative_im_path, test"):
        read(tmp_path)


def test_paths_stay_inside_the_root(tmp_path: Path) -> None:
    write_annotations(tmp_path / "cars_annos.mat", ["a.jpg", "../../etc/x"], [1, 2], name_field="relative_im_path")
    with pytest.raises(DatasetError, match=r"'\.\./\.\./etc/x' lies outside"):
        read(tmp_path)


def test_a_wrong_count_is_an_error(tmp_path: Path) -> None:
    write_annotations(tmp_path / "cars_annos.mat", ["a.jpg", "b.jpg"], [1, 99], name_field="relative_im_path")
    with pytest.raises(DatasetError, match="expected 8,054 training images in 98 classes, found 1 in 1; expected 8,131 test"):
        read(tmp_path)


def test_another_folder_is_answered_with_the_known_layouts(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"(?s)It holds: nothing\..*cars_annos\.mat.*cars_test_annos_withlabels\.mat"):
        read(tmp_path)
