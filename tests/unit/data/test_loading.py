"""Batches: in order, once each, the same whatever the number of workers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from see_tune.data.loading import Loader, auto_workers
from see_tune.data.pictures import Images
from see_tune.data.table import ImageTable
from see_tune.data.transforms import Preprocessing
from see_tune.errors import DatasetError

SMALL = Preprocessing(16, 20)


def open_loader(table: ImageTable, *, workers: int = 0, seed: int = 0, preprocessing: Preprocessing = SMALL) -> Loader:
    return Loader(table, preprocessing, crop_scale_min=0.3, flip=True, seed=seed, workers=workers)


def train(loader: Loader, epoch: int, *batches: list[int]) -> list[torch.Tensor]:
    return [images for images, _ in loader.train(epoch, [np.array(batch) for batch in batches])]


@pytest.mark.parametrize("batch_size", [1, 5, 24, 100])
def test_evaluation_gives_each_row_once_in_order(picture_table: ImageTable, batch_size: int) -> None:
    rows = np.array([23, 3, 0, 7, 11])
    with open_loader(picture_table) as loader:
        batches = list(loader.evaluate(rows, batch_size))
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    expected = [SMALL(Images(picture_table)[row]) for row in rows.tolist()]
    assert torch.equal(torch.cat(batches), torch.stack(expected))


def test_no_rows_are_no_batches(picture_table: ImageTable) -> None:
    with open_loader(picture_table) as loader:
        assert list(loader.evaluate(np.array([], np.int64), 4)) == []
        assert list(loader.train(0, [])) == []


def test_batches_are_float_images_with_their_rows(picture_table: ImageTable) -> None:
    with open_loader(picture_table) as loader:
        [(images, rows)] = loader.train(0, [np.array([4, 2, 9])])
    assert (images.shape, images.dtype, rows.dtype) == ((3, 3, 16, 16), torch.float32, torch.int64)
    assert rows.tolist() == [4, 2, 9]


def test_workers_change_nothing(picture_table: ImageTable) -> None:
    batches = [np.array([0, 5, 5, 9]), np.array([1, 2, 5])]
    results = []
    for workers in (0, 2):
        torch.manual_seed(0)
        with open_loader(picture_table, workers=workers) as loader:
            given = [torch.cat([images for images, _ in loader.train(epoch, batches)]) for epoch in (0, 1)]
            given.append(torch.cat(list(loader.evaluate(np.arange(24), 7))))
            next(loader.evaluate(np.arange(24), 7))  # left early: the next iteration starts afresh
            given.append(torch.cat([images for images, _ in loader.train(2, batches)]))
        given.append(torch.rand(3))  # nor is the trainer's own random stream moved
        results.append(given)
    assert all(torch.equal(here, there) for here, there in zip(*results, strict=True))


def test_a_crop_depends_on_seed_epoch_and_row_and_not_on_its_batch(picture_table: ImageTable) -> None:
    loader = open_loader(picture_table)
    [first] = train(loader, 1, [0, 1, 2])
    assert torch.equal(train(loader, 1, [5, 6], [7, 1])[1][1], first[1])
    assert not torch.equal(train(loader, 2, [1])[0][0], first[1])
    assert not torch.equal(train(open_loader(picture_table, seed=1), 1, [1])[0][0], first[1])


def test_an_image_drawn_again_in_an_epoch_gets_another_crop(picture_table: ImageTable) -> None:
    first, second = train(open_loader(picture_table), 0, [3, 3], [3])
    crops = [first[0], first[1], second[0]]
    assert not any(torch.equal(crops[a], crops[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_without_flip_no_crop_is_mirrored(glyph_table: ImageTable) -> None:
    preprocessing = Preprocessing(32, 32, mean=(0, 0, 0), std=(1, 1, 1))
    whole = Loader(glyph_table, preprocessing, crop_scale_min=1.0, flip=False, seed=0, workers=0)
    mirrored = Loader(glyph_table, preprocessing, crop_scale_min=1.0, flip=True, seed=0, workers=0)
    rows = np.arange(64)
    [(plain, _)], [(maybe, _)] = whole.train(0, [rows]), mirrored.train(0, [rows])
    same = [torch.equal(a, b) for a, b in zip(plain, maybe, strict=True)]
    flipped = [torch.equal(a, b.flip(-1)) for a, b in zip(plain, maybe, strict=True)]
    assert all(a or b for a, b in zip(same, flipped, strict=True))
    assert 10 < sum(flipped) < 54


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_does_not_decode_is_named_without_a_workers_traceback(picture_table: ImageTable, workers: int) -> None:
    picture_table.file(2).write_bytes(b"")
    with (
        open_loader(picture_table, workers=workers) as loader,
        pytest.raises(DatasetError, match=r"a/2\.jpg: does not decode") as caught,
    ):
        list(loader.evaluate(np.arange(24), 8))
    assert "Traceback" not in str(caught.value)


ENDLESS = """
import multiprocessing, sys, time
import subprocess
import sys
import time
from pathlib import Path
import numpy as np
from see_tune.data import read_table
from see_tune.data.loading import Loader
from see_tune.data.transforms import Preprocessing

if __name__ == "__main__":
    table = read_table("folder", places=[Path(sys.argv[1])], cache=Path(sys.argv[1]))
    loader = Loader(table, Preprocessing(16, 20), crop_scale_min=0.3, flip=True, seed=0, workers=2)
    next(loader.evaluate(np.arange(8), 2))
    print(*[process.pid for process in multiprocessing.active_children()], flush=True)
    time.sleep(100)
"""


def test_workers_end_with_a_trainer_that_is_killed(picture_table: ImageTable, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    trainer = subprocess.Popen([sys.executable, str(script), str(picture_table.root)], stdout=subprocess.PIPE, text=True)
    workers = [int(pid) for pid in (trainer.stdout.readline() if trainer.stdout else "").split()]
    trainer.kill()
    trainer.communicate()
    ended_by = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < ended_by:
        time.sleep(0.1)
    assert len(workers) == 2
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []


def test_glyphs_come_out_of_their_pixel_file_row_by_row(glyph_table: ImageTable) -> None:
    taken = glyph_table.take(np.array([100, 7]))
    pixels = np.load(glyph_table.pixels or Path(), mmap_mode="r")
    assert np.array_equal(np.asarray(Images(taken)[1]), pixels[7])


def test_waiting_is_counted_in_seconds(picture_table: ImageTable) -> None:
    with open_loader(picture_table) as loader:
        list(loader.evaluate(np.arange(24), 8))
        assert 0 < loader.wait_s < 5


def test_workers_are_a_core_each_less_the_trainers(picture_table: ImageTable, glyph_table: ImageTable) -> None:
    assert [auto_workers(picture_table, cpus) for cpus in (1, 2, 8, 64)] == [1, 1, 7, 16]
    assert auto_workers(glyph_table, 8) == 0
