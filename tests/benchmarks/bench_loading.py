"""Images per second: our loader against torchvision's ImageFolder, the decoded cache against our loader, and glyphs.

    python tests/benchmarks/bench_loading.py [--images 2000] [--workers 0 2]

Same files (generated JPEGs of 500 x 375), same transforms (RandomResizedCrop 224 bicubic, flip, normalise), same workers. Each
is run twice in turn and its better run counts. Wanted: at least 1.0 x without the cache, at least 2.5 x with it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from see_tune.data import read_table
from see_tune.data.cache import cached_table
from see_tune.data.loading import Loader
from see_tune.data.table import ImageTable
from see_tune.data.transforms import Preprocessing

BATCH = 100
PREPROCESSING = Preprocessing(224, 256)
Epoch = Callable[[int], Iterable[object]]


def write_jpegs(root: Path, count: int) -> None:
    """Pictures with the file size of photographs (about 60 kB): noise at a low resolution, enlarged, with some grain."""
    rng = np.random.default_rng(0)
    for number in range(count):
        folder = root / f"{number % 20:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        rough = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375), Image.Resampling.BICUBIC)
        grain = np.asarray(rough, np.int16) + rng.integers(-12, 13, (375, 500, 1), np.int16)
        Image.fromarray(grain.clip(0, 255).astype(np.uint8)).save(folder / f"{number:05d}.jpg", quality=88)


def images_per_second(epoch: Epoch, count: int, number: int) -> float:
    started = time.perf_counter()
    for _ in epoch(number):
        pass
    return count / (time.perf_counter() - started)


def torchvision_epochs(root: Path, workers: int) -> Epoch:
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(224, scale=(0.2, 1.0), interpolation=v2.InterpolationMode.BICUBIC),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(PREPROCESSING.mean, PREPROCESSING.std),
        ]
    )
    loader = DataLoader(
        ImageFolder(str(root), transform),
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="forkserver" if workers else None,
    )
    return lambda _: loader


def our_epochs(table: ImageTable, workers: int, preprocessing: Preprocessing = PREPROCESSING) -> Epoch:
    loader = Loader(table, preprocessing, crop_scale_min=0.2, flip=True, seed=0, workers=workers)

    def epoch(number: int) -> Iterable[object]:
        order = np.random.default_rng(number).permutation(len(table)).astype(np.int64)
        return loader.train(number, np.array_split(order, max(1, len(table) // BATCH)))

    return epoch


def compare(root: Path, cache: Path, workers: int) -> None:
    table = read_table("folder", places=[root], cache=cache)
    started = time.perf_counter()
    cached = cached_table(table, cache=cache, resize_size=PREPROCESSING.resize_size, limit_gb=10)
    built = time.perf_counter() - started
    runs = {
        "torchvision": torchvision_epochs(root, workers),
        "see-tune": our_epochs(table, workers),
        "see-tune, cached": our_epochs(cached, workers),
    }
    for epoch in runs.values():  # workers start, files enter the page cache
        images_per_second(epoch, len(table), 0)
    best = dict.fromkeys(runs, 0.0)
    for number in (1, 2):
        for name, epoch in runs.items():
            best[name] = max(best[name], images_per_second(epoch, len(table), number))
    rates = "  ".join(f"{name} {rate:,.0f} img/s" for name, rate in best.items())
    print(f"workers {workers}:  {rates}  (cache in {built:.1f} s)")
    print(f"  see-tune / torchvision   {best['see-tune'] / best['torchvision']:.2f} x   (at least 1.0)")
    print(f"  cached / see-tune        {best['see-tune, cached'] / best['see-tune']:.2f} x   (at least 2.5)")


def glyphs(cache: Path) -> None:
    epoch = our_epochs(read_table("glyphs", places=(), cache=cache), 0, Preprocessing(32, 32))
    rate = max(images_per_second(epoch, 19_800, number) for number in (0, 1))
    print(f"glyphs, workers 0, one thread: {rate:,.0f} img/s   (at least 4,000)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "pictures", Path(folder) / "cache"
        write_jpegs(root, arguments.images)
        for workers in arguments.workers:
            compare(root, cache, workers)
        glyphs(cache)


if __name__ == "__main__":
    main()
