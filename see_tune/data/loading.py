"""ImageTable -> batches of normalised images, in the order asked for.

    with Loader(table, preprocessing, crop_scale_min=0.2, flip=True, seed=0, workers=4) as loader:
        for images, rows in loader.train(epoch, batches): ...
        for images in loader.evaluate(rows, batch_size=256): ...

Worker processes start once (by forkserver: a fork after OpenMP or gRPC threads started can hang) and serve training and
evaluation of all epochs. They return uint8 crops; the batch is normalised here. The same batches come out whatever the
number of workers.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from see_tune.data.pictures import Images
from see_tune.data.table import ImageTable
from see_tune.data.transforms import CROP_UNIFORMS, Preprocessing, random_crop, uniforms
from see_tune.errors import DatasetError

Rows = NDArray[np.int64]
_PREFETCHED_BATCHES = 2  # per worker
_MAX_WORKERS = 16
_SMALL_PX = 64
_Made = Tensor | DatasetError


@dataclass(frozen=True)
class _Task:
    """One batch to make. epoch and draws are None for evaluation."""

    rows: Rows
    epoch: int | None = None
    draws: Rows | None = None


class _Plan(Sampler[_Task]):
    """The tasks of the iteration that starts next; the DataLoader asks it anew each time."""

    def __init__(self) -> None:
        self.tasks: Sequence[_Task] = ()

    def __iter__(self) -> Iterator[_Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


class _Crops(Dataset[_Made]):
    """Task -> (B, S, S, 3) uint8; lives in the workers. An error of ours is handed over as a value: raised in a worker,
    torch would wrap it in the worker's traceback."""

    def __init__(self, table: ImageTable, preprocessing: Preprocessing, crop_scale_min: float, flip: bool, seed: int) -> None:
        self.images = Images(table)
        self.preprocessing = preprocessing
        self.crop_scale_min = crop_scale_min
        self.flip = flip
        self.seed = seed

    def __getitem__(self, task: _Task) -> _Made:
        try:
            return torch.from_numpy(self._make(task))
        except DatasetError as error:
            return error

    def _make(self, task: _Task) -> NDArray[np.uint8]:
        side = self.preprocessing.image_size
        batch = np.empty((len(task.rows), side, side, 3), np.uint8)
        if task.epoch is None or task.draws is None:
            for slot, row in enumerate(task.rows.tolist()):
                batch[slot] = self.preprocessing.evaluate(self.images[row])
            return batch
        uniform = uniforms(self.seed, task.epoch, task.rows, task.draws, CROP_UNIFORMS)
        for slot, row in enumerate(task.rows.tolist()):
            batch[slot] = self._random_crop(row, uniform[slot])
        return batch

    def _random_crop(self, row: int, uniform: NDArray[np.float64]) -> NDArray[np.uint8]:
        pixels = self.images.decoded(row)
        if pixels is None:
            image = self.images[row]
            box, coin = random_crop(uniform, *image.size, self.crop_scale_min)
            return self.preprocessing.crop(image, box, flip=self.flip and coin)
        height, width, _ = pixels.shape
        box, coin = random_crop(uniform, width, height, self.crop_scale_min)
        return self.preprocessing.crop_decoded(pixels, box, flip=self.flip and coin)


class Loader:
    """Batches of one table for one training. One iteration at a time: starting another ends the one before.

    crop_scale_min: smallest area of a training crop, as part of the image, in (0, 1].
    flip: mirror half of the training crops.
    seed: of the augmentations, which are a function of (seed, epoch, row, how often the row was drawn before in this epoch).
    workers: processes; 0 makes the batches in this one.
    """

    def __init__(
        self, table: ImageTable, preprocessing: Preprocessing, *, crop_scale_min: float, flip: bool, seed: int, workers: int
    ) -> None:
        self.preprocessing = preprocessing
        self.wait_s = 0.0
        """Seconds spent waiting for data since the loader was made; with workers = 0, all the time spent on making it."""
        self._crops = _Crops(table, preprocessing, crop_scale_min, flip, seed)
        self._plan = _Plan()
        self._workers: DataLoader[_Made] | None = _start_workers(self._crops, self._plan, workers) if workers else None

    def train(self, epoch: int, rows_per_batch: Sequence[Rows]) -> Iterator[tuple[Tensor, Tensor]]:
        """((B, 3, S, S) float32, (B,) int64 table rows) for each batch, in order.

        Raises:
            DatasetError: an image does not decode.
        """
        draws = _count_earlier(rows_per_batch)
        tasks = [_Task(np.asarray(rows, np.int64), epoch, drawn) for rows, drawn in zip(rows_per_batch, draws, strict=True)]
        for task, images in zip(tasks, self._batches(tasks), strict=True):
            yield images, torch.from_numpy(task.rows)

    def evaluate(self, rows: Rows, batch_size: int) -> Iterator[Tensor]:
        """(B, 3, S, S) float32 of `rows`, in order, once each; the last batch may be smaller.

        Raises:
            DatasetError: an image does not decode.
        """
        rows = np.asarray(rows, np.int64)
        return self._batches([_Task(rows[start : start + batch_size]) for start in range(0, len(rows), batch_size)])

    def close(self) -> None:
        """End the worker processes."""
        iterator = getattr(self._workers, "_iterator", None)
        if iterator is not None:
            iterator._shutdown_workers()
        self._workers = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _batches(self, tasks: Sequence[_Task]) -> Iterator[Tensor]:
        crops = self._made_here(tasks) if self._workers is None else self._made_by_workers(tasks)
        while True:
            started = time.perf_counter()
            made = next(crops, None)
            if isinstance(made, DatasetError):
                raise made
            images = None if made is None else self.preprocessing.normalise(made)
            self.wait_s += time.perf_counter() - started
            if images is None:
                return
            yield images

    def _made_here(self, tasks: Iterable[_Task]) -> Iterator[_Made]:
        return (self._crops[task] for task in tasks)

    def _made_by_workers(self, tasks: Sequence[_Task]) -> Iterator[_Made]:
        self._plan.tasks = tasks
        return iter(self._workers or ())


def auto_workers(table: ImageTable, cpus: int) -> int:
    """Loader processes for a trial with `cpus` cores: none for small decoded images, else a core each less the trainer's own."""
    if table.pixels is not None and Images(table)[0].width <= _SMALL_PX:
        return 0
    return min(max(cpus - 1, 1), _MAX_WORKERS)


def _start_workers(crops: _Crops, plan: _Plan, workers: int) -> DataLoader[_Made]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["see_tune.data.loading"])  # torch is imported once, not once a worker
    return DataLoader(
        crops,
        batch_size=None,
        sampler=plan,
        num_workers=workers,
        prefetch_factor=_PREFETCHED_BATCHES,
        persistent_workers=True,
        multiprocessing_context=context,
        worker_init_fn=_end_with_the_trainer,
        generator=torch.Generator(),  # its seed for the workers must not advance the trainer's own random stream
    )


def _end_with_the_trainer(_worker: int) -> None:
    """torch's workers end when their parent does; by forkserver that is the fork server, which in turn lives as long as they do.
    So each also watches the trainer itself, or a trainer that was killed would leave them behind for good."""
    trainer = multiprocessing.parent_process()

    def watch() -> None:
        if trainer is not None:
            trainer.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _count_earlier(batches: Sequence[Rows]) -> list[Rows]:
    """For each row of each batch, how often it stands before in this epoch: a repeated image gets another crop."""
    if not batches:
        return []
    rows = np.concatenate(batches)
    order = np.argsort(rows, kind="stable")
    _, starts, counts = np.unique(rows[order], return_index=True, return_counts=True)
    earlier = np.empty(len(rows), np.int64)
    earlier[order] = np.arange(len(rows)) - np.repeat(starts, counts)
    return np.split(earlier, np.cumsum([len(batch) for batch in batches])[:-1])
