"""glyphs: rendered once, homoglyphs one class, the same everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from see_tune.data import glyphs, read_table
from see_tune.data.table import ImageTable, take_classes


def test_there_are_about_fourteen_hundred_classes_of_at_least_eight_images(glyph_table: ImageTable) -> None:
    counts = np.bincount(glyph_table.labels)
    assert 1_300 < len(counts) < 1_700
    assert 18_000 < len(glyph_table) < 22_000
    assert counts.min() >= glyphs.MIN_RENDERINGS


def test_pixels_are_one_file_of_32_by_32_rgb_row_for_row(glyph_table: ImageTable) -> None:
    assert glyph_table.pixels is not None
    pixels = np.load(glyph_table.pixels, mmap_mode="r")
    assert (pixels.shape, pixels.dtype) == ((len(glyph_table), 32, 32, 3), np.uint8)


def test_homoglyphs_are_one_class(glyph_table: ImageTable) -> None:
    named = [glyph_table.class_names[label] for label in glyph_table.labels]
    class_of = {path.partition("/")[0]: name for path, name in zip(glyph_table.paths, named, strict=True)}
    assert class_of["U+0041"] == class_of["U+0410"] == "U+0041 A"
    assert {"U+0391", "U+0410"} & {name.split()[0] for name in glyph_table.class_names} == set()


def test_look_alikes_in_italics_alone_stay_two_classes(glyph_table: ImageTable) -> None:
    assert {"U+006E n", "U+043F п"} <= set(glyph_table.class_names)


def test_no_picture_is_there_twice(glyph_table: ImageTable) -> None:
    pixels = np.load(glyph_table.pixels or "", mmap_mode="r")
    assert len({picture.tobytes() for picture in pixels}) == len(pixels)


def test_half_of_the_classes_train_and_half_test(glyph_table: ImageTable) -> None:
    train, test = (set(glyph_table.labels[glyph_table.rows(split)]) for split in ("train", "test"))
    assert not train & test
    assert abs(len(train) - len(test)) <= 1


def test_another_seed_is_another_split(glyph_table: ImageTable, glyph_cache: Path) -> None:
    assert glyphs.read(cache=glyph_cache).fingerprint() == glyph_table.fingerprint()
    assert glyphs.read(cache=glyph_cache, seed=1).fingerprint() != glyph_table.fingerprint()


def test_a_subset_points_at_its_own_pictures(glyph_table: ImageTable) -> None:
    taken = take_classes(glyph_table, 10, seed=0)
    row = taken.rows("test")[0]
    assert glyph_table.paths[taken.pixel_row(row)] == taken.paths[row]


def test_rendering_in_another_folder_gives_the_same_table(glyph_table: ImageTable, tmp_path: Path) -> None:
    again = read_table("glyphs", places=(), cache=tmp_path)
    assert again.fingerprint() == glyph_table.fingerprint()
    assert (again.pixels or tmp_path).read_bytes() == (glyph_table.pixels or tmp_path).read_bytes()


def test_processes_that_start_together_render_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from see_tune.data import glyphs; build = glyphs._build\n"
        "def count(faces, folder): print('built'); build(faces, folder)\n"
        "glyphs._build = count; print(glyphs.read(cache=Path(sys.argv[1])).fingerprint())"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [line for process in processes for line in process.communicate(timeout=60)[0].split()]
    assert printed.count("built") == 1
    assert len(set(printed)) == 2
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_dir()] == [next(tmp_path.glob("glyphs-*/")).name]
