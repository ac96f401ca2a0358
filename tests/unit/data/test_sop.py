"""sop: a tree of the published size, and what can be wrong with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from see_tune.data.sop import read
from see_tune.errors import DatasetError

HEADER = "image_id class_id super_class_id path\n"


def write_half(file: Path, images: int, classes: int, first_class: int) -> None:
    lines = [f"{n + 1} {first_class + n % classes} 1 bicycle_final/{first_class + n % classes}_{n}.JPG\n" for n in range(images)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HEADER + "".join(lines))


@pytest.fixture
def published(tmp_path: Path) -> Path:
    root = tmp_path / "Stanford_Online_Products"
    write_half(root / "Ebay_train.txt", 59_551, 11_318, 1)
    write_half(root / "Ebay_test.txt", 60_502, 11_316, 11_319)
    return root


def test_a_tree_of_the_published_size_is_read_from_its_root_and_from_its_parent(published: Path) -> None:
    table = read(published)
    train, test = table.rows("train"), table.rows("test")
    assert (len(train), len(test)) == (59_551, 60_502)
    assert (len(np.unique(table.labels[train])), len(np.unique(table.labels[test]))) == (11_318, 11_316)
    assert read(published.parent).fingerprint() == table.fingerprint()


def test_a_truncated_file_is_a_wrong_count(published: Path) -> None:
    file = published / "Ebay_train.txt"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1_000]))
    with pytest.raises(DatasetError, match="expected 59,551 training images in 11,318 classes, found 58,551 in 11,318"):
        read(published)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "does not begin with the header"),
        ("1 1 1 a.JPG\n", "does not begin with the header"),
        (HEADER + "1 1 1 a.JPG\n2 1", r"Ebay_test.txt:3: '2 1' has 2 fields"),
        (HEADER + "1 1 1 /etc/passwd\n", r"Ebay_test.txt:2: '/etc/passwd' lies outside"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    write_half(tmp_path / "Ebay_train.txt", 4, 2, 1)
    (tmp_path / "Ebay_test.txt").write_text(content)
    with pytest.raises(DatasetError, match=message):
        read(tmp_path, allow_partial=True)


def test_a_missing_half_is_named(tmp_path: Path) -> None:
    write_half(tmp_path / "Ebay_train.txt", 4, 2, 1)
    with pytest.raises(DatasetError, match=r"Ebay_test\.txt can't be read"):
        read(tmp_path)


def test_another_folder_is_answered_with_the_known_layouts(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"(?s)known layout.*Ebay_train"):
        read(tmp_path)
