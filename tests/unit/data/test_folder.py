"""folder: class directories, with and without split folders above."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from see_tune.data import read_table
from see_tune.data.folder import read
from see_tune.errors import DatasetError

Make = Callable[..., Path]


def test_one_directory_a_class_is_all_training(make_pictures: Make) -> None:
    table = read(make_pictures("b/2.jpg", "b/deep/1.png", "a/1.JPG"))
    assert table.paths == ("a/1.JPG", "b/2.jpg", "b/deep/1.png")
    assert [table.class_names[label] for label in table.labels] == ["a", "b", "b"]
    assert set(table.split) == {"train"}


def test_split_folders_are_splits(make_pictures: Make) -> None:
    table = read(make_pictures("train/a/1.jpg", "val/b/1.jpg", "test/c/1.jpg"))
    assert table.split.tolist() == ["train", "validation", "test"]
    assert table.is_query.all()
    assert table.is_gallery.all()


@pytest.mark.parametrize("inside", ["", "test/"])
def test_query_and_gallery_are_test_images_with_roles(make_pictures: Make, inside: str) -> None:
    table = read(make_pictures("train/a/1.jpg", f"{inside}query/c/1.jpg", f"{inside}gallery/c/2.jpg"))
    assert table.split.tolist() == ["train", "test", "test"]
    assert table.is_query.tolist() == [True, True, False]
    assert table.is_gallery.tolist() == [True, False, True]
    assert table.labels[1] == table.labels[2]


def test_hidden_files_and_other_endings_are_passed_over(make_pictures: Make) -> None:
    root = make_pictures("a/1.jpg", "a/._1.jpg", "__MACOSX/a/1.jpg", ".git/x/1.jpg")
    (root / "a" / "notes.txt").write_text("not an image")
    assert read(root).paths == ("a/1.jpg",)


def test_a_class_without_an_image_is_named(make_pictures: Make) -> None:
    root = make_pictures("a/1.jpg")
    (root / "b").mkdir()
    with pytest.raises(DatasetError, match=r"class folder .*/b holds no image"):
        read(root)


def test_a_class_in_train_and_test_is_refused(make_pictures: Make, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"in train and in test \(first: 'a'\)"):
        read_table("folder", places=(make_pictures("train/a/1.jpg", "test/a/2.jpg"),), cache=tmp_path / "cache")


def test_other_folders_beside_train_are_named(make_pictures: Make) -> None:
    with pytest.raises(DatasetError, match="has the folders train and extra"):
        read(make_pictures("train/a/1.jpg", "extra/b/2.jpg"))


def test_images_without_class_folders_are_answered_with_the_known_layouts(make_pictures: Make) -> None:
    with pytest.raises(DatasetError, match=r"(?s)It holds: 1.jpg\..*ROOT/<class>/<image>"):
        read(make_pictures("1.jpg"))


def test_a_file_as_root_is_named(make_pictures: Make) -> None:
    with pytest.raises(DatasetError, match=r"1\.jpg can't be read \(Not a directory\)"):
        read(make_pictures("1.jpg") / "1.jpg")


def test_an_unreadable_folder_is_named(make_pictures: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_pictures("a/1.jpg")

    def refuse(folder: Path) -> None:  # a test may run as root, whom no permission stops
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DatasetError, match=r"pictures can't be read \(Permission denied\)"):
        read(root)


def test_a_link_to_a_folder_around_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c0").mkdir()
    (tmp_path / "c0" / "a.png").touch()
    (tmp_path / "c0" / "up").symlink_to(tmp_path)

    with pytest.raises(DatasetError, match="remove the link"):
        read(tmp_path)


def test_two_folders_for_one_split_are_refused(tmp_path: Path) -> None:
    for part in ("train", "Train"):
        (tmp_path / part / f"c {part}").mkdir(parents=True)
        (tmp_path / part / f"c {part}" / "a.png").touch()

    with pytest.raises(DatasetError, match="has both"):
        read(tmp_path)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/c\xff"))
    folder.mkdir()
    (folder / "a.png").touch()

    with pytest.raises(DatasetError, match="no UTF-8 text"):
        read(tmp_path)
