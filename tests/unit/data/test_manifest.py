"""manifest: a CSV of one's own, and the split that is written as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from see_tune.data.manifest import read, write_split_manifest
from see_tune.errors import DatasetError

Make = Callable[..., Path]


def write(folder: Path, text: str) -> Path:
    file = folder / "manifest.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_path_and_label_are_enough(tmp_path: Path) -> None:
    table = read(write(tmp_path, "path,label\nx/1.jpg,cat\nx/2.jpg,dog\n"))
    assert (table.paths, table.class_names, table.root) == (("x/1.jpg", "x/2.jpg"), ("cat", "dog"), tmp_path)
    assert set(table.split) == {"train"}


def test_the_folder_of_the_file_is_a_root_too(tmp_path: Path) -> None:
    file = write(tmp_path, "path,label\n1.jpg,cat\n")
    assert read(tmp_path).fingerprint() == read(file).fingerprint()


def test_labels_are_any_numbers(tmp_path: Path) -> None:
    table = read(write(tmp_path, "path,label\n1.jpg,900\n2.jpg,5\n3.jpg,16777217\n4.jpg,16777216\n5.jpg,-1\n"))
    assert table.labels.tolist() == [0, 1, 2, 3, 4]


def test_splits_and_roles_are_read(tmp_path: Path) -> None:
    rows = "a,1.jpg,train,,\nb,2.jpg,Validation,,\nc,3.jpg,test,1,0\nc,4.jpg,test,no,yes\n"
    table = read(write(tmp_path, f"label,path,split,is_query,is_gallery\n{rows}"))
    assert table.split.tolist() == ["train", "validation", "test", "test"]
    assert (table.is_query.tolist(), table.is_gallery.tolist()) == ([True, True, True, False], [True, True, False, True])


def test_a_byte_order_mark_and_crlf_ends_are_taken(tmp_path: Path) -> None:
    table = read(write(tmp_path, "\ufeffpath,label\r\n1.jpg,a\r\n"))
    assert (table.paths, table.class_names) == (("1.jpg",), ("a",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,class\n1.jpg,a\n", ":1: no column 'label'; the header is path,class"),
        ("path,label,splt\n1.jpg,a,test\n", ":1: an unknown column 'splt'"),
        ("path,label,label\n1.jpg,a,b\n", ":1: a column twice"),
        ("path;label\n1.jpg;a\n", "separated by semicolons: write them with commas"),
        ("path\tlabel\n1.jpg\ta\n", "separated by tabs: write them with commas"),
        ("Path,Label\n1.jpg,a\n", "exactly so: 'Path' is to be path, 'Label' is to be label"),
        ("path, label,SPLIT\n1.jpg,a,test\n", "exactly so: ' label' is to be label, 'SPLIT' is to be split"),
        ("", ":1: no column 'path'; the header is empty"),
        ("path,label\n", "lists no image"),
        ("path,label\n1.jpg,a\n1.jpg,a\n", r":3: '1.jpg' stands in .*:2 already"),
        ("path,label\n1.jpg,a\n./1.jpg,b\n", r":3: '1.jpg' stands in .*:2 already"),
        ("path,label\n../../etc/x,a\n", r":2: path '../../etc/x' does not stay in"),
        ("path,label\nx/../../y.jpg,a\n", r":2: path .* does not stay in"),
        ("path,label\n..\\y.jpg,a\n", r":2: path '../y.jpg' does not stay in"),
        ("path,label\n/etc/passwd,a\n", r":2: path '/etc/passwd' does not stay in"),
        ("path,label\n,a\n", r":2: an empty path"),
        ("path,label\n1.jpg,\n", ":2: an empty label"),
        ("path,label\n1.jpg\n", ":2: as many fields as the header has columns"),
        ("path,label\n1.jpg,a,b\n", ":2: as many fields as the header has columns"),
        ("path,label,split\n1.jpg,a,dev\n", ":2: split 'dev' is none of train, validation, test"),
        ("path,label,is_query\n1.jpg,a,maybe\n", ":2: is_query 'maybe' is none of 1, true"),
        ('path,label\n"1.jpg,a\n', "can't be read as CSV"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read(write(tmp_path, text))


def test_a_missing_file_and_a_binary_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"there is no .*manifest\.csv\. A manifest is a CSV file, or ROOT/manifest\.csv"):
        read(tmp_path)
    (tmp_path / "manifest.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(DatasetError, match=r"manifest\.csv can't be read as CSV"):
        read(tmp_path)


def test_a_written_split_is_three_way_disjoint_and_repeatable(make_pictures: Make) -> None:
    root = make_pictures(*[f"{label}/{n}.jpg" for label in "abcdefghij" for n in range(2)])
    table = write_split_manifest(root, root.parent / "manifest.csv", seed=4)
    classes = [set(table.labels[table.rows(split)]) for split in ("train", "validation", "test")]
    assert [len(part) for part in classes] == [5, 2, 3]
    assert len(set.union(*classes)) == 10
    assert all(table.file(row).is_file() for row in range(len(table)))
    assert write_split_manifest(root, root / "again.csv", seed=4).split.tolist() == table.split.tolist()
    assert not np.array_equal(write_split_manifest(root, root / "other.csv", seed=5).split, table.split)


def test_a_split_that_is_there_is_not_written_over(make_pictures: Make) -> None:
    root = make_pictures(*[f"{label}/{n}.jpg" for label in "abcdef" for n in range(2)])
    write_split_manifest(root, root / "m.csv", seed=4)
    before = (root / "m.csv").read_bytes()
    with pytest.raises(DatasetError, match=r"m\.csv is there already"):
        write_split_manifest(root, root / "m.csv", seed=5)
    assert (root / "m.csv").read_bytes() == before


def test_a_manifest_outside_of_its_pictures_is_refused(make_pictures: Make, tmp_path: Path) -> None:
    root = make_pictures(*[f"{label}/1.jpg" for label in "abcdef"])
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(DatasetError, match="would list pictures outside of its own folder"):
        write_split_manifest(root, tmp_path / "elsewhere" / "m.csv")


def test_too_few_classes_for_three_parts_is_an_error(make_pictures: Make) -> None:
    root = make_pictures("a/1.jpg", "b/1.jpg")
    with pytest.raises(DatasetError, match="has 2 classes; train, validation and test need at least 2 each, 6 in all"):
        write_split_manifest(root, root / "m.csv")


def test_a_folder_with_splits_is_not_split_again(make_pictures: Make) -> None:
    root = make_pictures("train/a/1.jpg", "test/b/1.jpg")
    with pytest.raises(DatasetError, match=r"has splits of its own \(train/, test/\)"):
        write_split_manifest(root, root / "m.csv")


@pytest.mark.parametrize("odd", ["c0/a\\b.png", " c9/a.png"])
def test_a_name_that_a_manifest_would_change_is_refused_and_nothing_is_written(odd: str, tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"c{number}").mkdir()
        (tmp_path / f"c{number}" / "a.png").touch()
    (tmp_path / odd).parent.mkdir(exist_ok=True)
    (tmp_path / odd).touch()

    with pytest.raises(DatasetError, match="rename it"):
        write_split_manifest(tmp_path, tmp_path / "manifest.csv")

    assert not list(tmp_path.glob("*manifest*"))


def test_a_manifest_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"c{number}").mkdir()
        (tmp_path / f"c{number}" / "a.png").touch()

    with pytest.raises(DatasetError, match="cannot be written"):
        write_split_manifest(tmp_path, tmp_path / "c0")
