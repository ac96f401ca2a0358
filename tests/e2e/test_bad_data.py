"""A dataset that is wrong is said in one message, by `run` and by `datasets check`, before anything is trained."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from see_tune.cli.app import main

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"

STUDY = """
study: bad
dataset: {{name: {name}, root: {root}}}
model: {{backbone: glyphnet, weights: none, embedding_dim: 8}}
train: {{epochs: 1, batch_size: 4}}
see: {{n_aug: 2}}
search: {{see.n_aug: {{int: [1, 4]}}}}
final: none
"""


def picture(path: Path, content: bytes | None = None) -> None:
    """A small sound picture, or a file of that name with `content`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        noise = np.random.default_rng(zlib.crc32(str(path).encode())).integers(0, 256, (32, 32, 3), np.uint8)
        Image.fromarray(noise).save(path)
    else:
        path.write_bytes(content)


def sound_folder(root: Path) -> None:
    for label in "abcdef":
        for number in range(3):
            picture(root / label / f"{number}.png")


def manifest(root: Path, text: str) -> None:
    sound_folder(root)
    (root / "manifest.csv").write_text(text, encoding="utf-8")


def enormous_png() -> bytes:
    """Claims 30,000 x 30,000 pixels in 57 bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    header = (30_000).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def broken_picture(content: bytes) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        sound_folder(root)
        picture(root / "c" / "broken.jpg", content)

    return make


def wrong_root(root: Path) -> None:
    (root / "holiday").mkdir(parents=True)


def empty_class(root: Path) -> None:
    sound_folder(root)
    (root / "g").mkdir()


def one_class(root: Path) -> None:
    for number in range(5):
        picture(root / "only" / f"{number}.png")


def cub_without_a_label_file(root: Path) -> None:
    root.mkdir()
    (root / "images.txt").write_text("1 001.A/a.jpg\n")


def cub_cut_short(root: Path) -> None:
    root.mkdir()
    (root / "images.txt").write_text("1 001.A/a.jpg\n2 001.A/b")
    (root / "image_class_labels.txt").write_text("1 1\n2")


def cars_cut_short(root: Path) -> None:
    rows = [(f"car_ims/{number:06d}.jpg", number % 196 + 1) for number in range(50)]
    annotations = np.array(rows, [("relative_im_path", "O"), ("class", "O")])
    root.mkdir()
    savemat(root / "cars_annos.mat", {"annotations": annotations})
    whole = (root / "cars_annos.mat").read_bytes()
    (root / "cars_annos.mat").write_bytes(whole[: len(whole) // 2])


def sop_cut_short(root: Path) -> None:
    root.mkdir()
    for half, line in (("Ebay_train", "1 1 1 bicycle_final/1.JPG"), ("Ebay_test", "2 2 1 bicycle_final/2.JPG")):
        (root / f"{half}.txt").write_text(f"image_id class_id super_class_id path\n{line}\n")


def inshop_cut_short(root: Path) -> None:
    (root / "img").mkdir(parents=True)
    (root / "list_eval_partition.txt").write_text("52712\nimage_name item_id evaluation_status\nimg/a.jpg  id_00000001  train\n")


Make = Callable[[Path], None]

BAD: dict[str, tuple[str, Make, str]] = {
    "missing root": ("folder", lambda root: None, "looked for"),
    "wrong root": ("cub200", wrong_root, "It holds: holiday"),
    "cub without a label file": ("cub200", cub_without_a_label_file, "image_class_labels.txt can't be read"),
    "cub cut short": ("cub200", cub_cut_short, "image_class_labels.txt:2: '2' has 1 field"),
    "cars cut short": ("cars196", cars_cut_short, "cars_annos.mat can't be read as MATLAB annotations"),
    "sop cut short": ("sop", sop_cut_short, "expected 59,551 training images in 11,318 classes, found 1 in 1"),
    "inshop cut short": ("inshop", inshop_cut_short, "announces 52,712 images and lists 1"),
    "0-byte jpeg": ("folder", broken_picture(b""), "broken.jpg: does not decode"),
    "text named .jpg": ("folder", broken_picture(b"this is a text file"), "broken.jpg: does not decode"),
    "enormous png": ("folder", broken_picture(enormous_png()), "broken.jpg: refused, it may be a decompression bomb"),
    "empty class": ("folder", empty_class, "g holds no image"),
    "one class": ("folder", one_class, "training class"),
    "missing column": ("manifest", lambda root: manifest(root, "path,class\na/0.png,a\n"), "no column 'label'"),
    "a path twice": ("manifest", lambda root: manifest(root, "path,label\na/0.png,a\na/0.png,b\n"), "stands in"),
    "a path out of the root": ("manifest", lambda root: manifest(root, "path,label\n../../etc/x,a\n"), "does not stay in"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def run(name: str, root: Path) -> int:
    (root.parent / "bad.yaml").write_text(STUDY.format(name=name, root=root))
    return main(["run", str(root.parent / "bad.yaml"), "--home", str(root.parent / "home")])


@pytest.mark.parametrize("case", BAD)
def test_a_study_on_it_ends_with_one_message_before_any_trial(case: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, make, message = BAD[case]
    make(root)

    assert run(name, root) == 2

    said = capsys.readouterr().err
    assert said.startswith("see-tune: ")
    assert said.count("see-tune: ") == 1
    assert message in said
    assert "Traceback" not in said
    assert not (root.parent / "home/studies").exists()


@pytest.mark.parametrize("case", BAD)
def test_a_check_of_it_names_what_is_wrong(case: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, make, message = BAD[case]
    make(root)

    code = main(["datasets", "check", name, "--root", str(root), "--home", str(root.parent / "home")])

    said = capsys.readouterr()
    assert code in (1, 2)  # 2: there is no table to look into; 1: the list of what is wrong in it
    assert message in (said.out if code == 1 else said.err)
    assert "Traceback" not in said.err


def test_label_files_without_their_images_are_counted_before_any_trial(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"no real annotation files at {SHARED}")
    root.mkdir()
    for file in (SHARED / "cub200_annotations").iterdir():
        (root / file.name).symlink_to(file)

    assert run("cub200", root) == 2

    said = capsys.readouterr().err
    assert "cub200: 11,788 of 11,788 images do not decode" in said
    assert "no such image" in said
    assert len(said.splitlines()) == 1


def test_a_folder_that_may_not_be_read_is_named(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sound_folder(root)
    listed = Path.iterdir

    def refuse(folder: Path) -> object:  # a test may run as root, whom no permission stops
        if folder == root:
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)

    assert run("folder", root) == 2

    assert f"{root} can't be read (Permission denied)" in capsys.readouterr().err


def test_a_manifest_with_a_byte_order_mark_is_sound(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split = {"e": "test", "f": "test"}
    rows = [f"{label}/{number}.png,{label},{split.get(label, 'train')}" for label in "abcdef" for number in range(3)]
    manifest(root, "\ufeff" + "\n".join(["path,label,split", *rows]))

    assert main(["datasets", "check", "manifest", "--root", str(root), "--home", str(root.parent / "home")]) == 0

    assert "12 images in      4 classes" in capsys.readouterr().out


def test_one_bad_picture_may_be_skipped_and_is_reported(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message of `run` names a way out; it must lead there."""
    broken_picture(b"")(root)
    (root.parent / "bad.yaml").write_text(STUDY.format(name="folder", root=root))
    flags = ("--set", "dataset.on_corrupt=skip", "--home", str(root.parent / "home"))

    assert main(["train", str(root.parent / "bad.yaml"), *flags]) == 0

    assert "best: val/recall_at_1" in capsys.readouterr().out


def test_advice_to_check_a_dataset_names_the_root_and_the_home_that_were_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    root = tmp_path / "my pictures"
    broken_picture(b"")(root)
    (tmp_path / "bad.yaml").write_text(STUDY.format(name="folder", root=root))
    assert main(["run", str(tmp_path / "bad.yaml"), "--home", str(tmp_path / "home")]) == 2
    said = capsys.readouterr().err
    assert f"see-tune datasets check folder --root '{root}' --home {tmp_path}/home" in said


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ("train train train train validation validation", "the manifest's own validation split (6 images of 2 classes)"),
        ("train train train train train train", "40% of the training classes (6 images of 2 classes)"),
    ],
)
def test_dry_run_says_on_which_images_a_trial_is_measured(
    split: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = "".join(
        f"{label}/{n}.png,{label},{part}\n" for label, part in zip("abcdef", split.split(), strict=True) for n in range(3)
    )
    manifest(tmp_path / "own", f"path,label,split\n{rows}")
    (tmp_path / "own.yaml").write_text(STUDY.format(name="manifest", root=tmp_path / "own"))
    arguments = ["run", str(tmp_path / "own.yaml"), "--dry-run", "--set", "validation.fraction=0.4"]
    assert main([*arguments, "--home", str(tmp_path / "home")]) == 0
    assert f"val/recall_at_1 on {said}" in capsys.readouterr().out
