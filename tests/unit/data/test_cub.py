"""cub200: the official text files, and what can be wrong with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from see_tune.data.cub import read
from see_tune.errors import DatasetError


@pytest.fixture
def official(shared: Path, tmp_path: Path) -> Path:
    """A copy of the official text files that a test may damage."""
    return shutil.copytree(shared / "cub200_annotations", tmp_path / "CUB_200_2011")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    root = tmp_path / "CUB_200_2011"
    root.mkdir()
    (root / "images.txt").write_text("1 001.A/a.jpg\n2 001.A/._b.jpg\n3 101.B/c.jpg\n")
    (root / "image_class_labels.txt").write_text("1 1\n2 1\n3 101\n")
    return root


def test_the_official_files_give_the_published_counts(official: Path) -> None:
    table = read(official)
    train, test = table.rows("train"), table.rows("test")
    assert (len(train), len(test)) == (5_864, 5_924)
    assert (len(np.unique(table.labels[train])), len(np.unique(table.labels[test]))) == (100, 100)
    assert table.paths[0] == "images/001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg"


def test_the_closed_set_split_file_is_not_read(official: Path) -> None:
    before = read(official).fingerprint()
    (official / "train_test_split.txt").unlink()
    assert read(official).fingerprint() == before


def test_the_parent_folder_and_crlf_ends_give_the_same_table(official: Path) -> None:
    before = read(official).fingerprint()
    for file in official.glob("*.txt"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert read(official.parent).fingerprint() == before


def test_missing_images_are_counted_against_the_published_number(official: Path) -> None:
    for name in ("images.txt", "image_class_labels.txt"):
        lines = (official / name).read_text().splitlines(keepends=True)
        (official / name).write_text("".join(lines[3:]))
    with pytest.raises(DatasetError, match="expected 5,864 training images in 100 classes, found 5,861"):
        read(official)
    assert "found 5,861" in read(official, allow_partial=True).notes[0]


def test_files_of_macos_are_skipped(small: Path) -> None:
    assert read(small, allow_partial=True).paths == ("images/001.A/a.jpg", "images/101.B/c.jpg")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("images.txt", "1 001.A/a.jpg\n2", r"images.txt:2: '2' has 1 field; a line is `image_id path`"),
        ("images.txt", "1 001.A/a.jpg\n", r"differ in 2 images \(first: image 2\)"),
        ("images.txt", "1 a.jpg\n2 ../../etc/x\n3 b.jpg\n", r"images.txt:2: '../../etc/x' lies outside"),
        ("image_class_labels.txt", "1 1\n2 1\n3 bird\n", "'bird' is no whole number"),
        ("images.txt", b"\xff\xfe\x00", "can't be read"),
        ("images.txt", "1 001.A/a.jpg\n2 001.A/a.jpg\n3 101.B/c.jpg\n", r"'images/001\.A/a\.jpg' is listed twice"),
        ("images.txt", "1 001.A/a.jpg\n2 001.A/b.jpg\n1 101.B/c.jpg\n", r"images.txt:3: image 1 stands in .*images.txt:1"),
        ("image_class_labels.txt", "1 1\n2 1\n3 101\n3 7\n", "txt:4: image 3 stands in"),
    ],
)
def test_damaged_files_are_named(small: Path, file: str, content: str | bytes, message: str) -> None:
    (small / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DatasetError, match=message):
        read(small, allow_partial=True)


def test_a_label_file_that_is_not_there_is_named(small: Path) -> None:
    (small / "image_class_labels.txt").unlink()
    with pytest.raises(DatasetError, match=r"image_class_labels\.txt can't be read"):
        read(small)


def test_cub_200_of_2010_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "files.txt").touch()
    with pytest.raises(DatasetError, match="CUB-200 of 2010"):
        read(tmp_path)


def test_another_folder_is_answered_with_the_known_layouts(tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    with pytest.raises(DatasetError, match=r"(?s)holds: holiday\..*known layout.*Caltech"):
        read(tmp_path)
