"""Does SEE help? A miniature of the paper's Table 2 on the embedded glyphs, as Markdown.

    python tests/benchmarks/bench_miniature.py --processes 2 --out miniature.jsonl     half an hour on one core
    python tests/benchmarks/bench_miniature.py --losses nsoftmax --dims 16 --classes 200 --seeds 1     a minute

Six proxy losses x {SEE off, SEE moving the proxies alone as in the published code, SEE moving everything}, with two numbers of
classes (half to train on, half to test on) and two dimensions: the paper expects the largest gains where many classes share few
dimensions. n 8, lambda 0.2, share 0 -> 0.4. The learning rates of each loss, dimension and number of classes are the best of six
WITHOUT SEE on a held-out fifth of the training classes (seed 0): the baseline is tuned, SEE is not. Each training then meets
the test classes once, after its last epoch. The three settings of one seed share initial weights, batches and augmentations, so
their differences are paired; intervals are Student's t at 95 % over the training seeds.

Every finished training is a line of --out: what is there is not run again, and the table is made of what is there.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

from see_tune.data import DATASETS, read_table
from see_tune.home import Home
from see_tune.losses import LOSSES
from see_tune.report.statistics import paired_gain
from see_tune.results import Interval
from see_tune.spec.models import DatasetSpec, SplitSpec, TrialSpec
from see_tune.spec.values import apply
from see_tune.training import train

PROXY_LOSSES = [name for name, entry in LOSSES.items() if entry.has_proxies]
SETTINGS = ("off", "proxies", "all")
EPOCHS = {200: 6, 600: 3}
"""By number of classes: about 100 and 150 steps, after which most of what the glyphs have to teach is learnt."""
LEARNING_RATES = tuple(product((1e-3, 2e-3, 4e-3), (10.0, 50.0)))
"""(the backbone's, how many times it the proxies')."""
MARGIN_SCALE = {"loss.cosface.scale": 20.0, "loss.arcface.scale": 20.0}
"""With the published 64 the margin losses hardly move in so few steps."""


@dataclass(frozen=True)
class Cell:
    """One training.

    classes: in all, half of them test classes. setting: SEE off, or what its gradient moves.
    measured_on: ``fraction``, a held-out part of the training classes; ``test``, the test classes.
    """

    classes: int
    dim: int
    loss: str
    setting: str
    seed: int
    lr: float
    proxies_lr_scale: float
    measured_on: Literal["fraction", "test"] = "test"

    def spec(self) -> TrialSpec:
        values = {
            **DATASETS["glyphs"].defaults,
            **MARGIN_SCALE,
            "seed": self.seed,
            "model.embedding_dim": self.dim,
            "loss.name": self.loss,
            "see.enabled": self.setting != "off",
            "see.gradient": "all" if self.setting == "all" else "proxies",
            "train.epochs": EPOCHS[self.classes],
            "train.optimizer.lr": self.lr,
            "train.optimizer.proxies_lr_scale": self.proxies_lr_scale,
        }
        glyphs = TrialSpec(dataset=DatasetSpec(name="glyphs", classes=self.classes), split=SplitSpec(kind=self.measured_on))
        return apply(glyphs, values)


Found = dict[Cell, float]


def recall_of(cell: Cell, home: Home) -> float:
    """R@1 in points after the last epoch."""
    result = train(cell.spec(), home=home, device="cpu", threads=1)
    if result.status != "complete":
        raise RuntimeError(f"{cell}: {result.cause}")
    return 100 * result.epochs[-1].metrics[cell.spec().objective_metric]


def read_found(out: Path | None) -> Found:
    if out is None or not out.exists():
        return {}
    rows = map(json.loads, out.read_text().splitlines())
    return {Cell(**row["cell"]): row["recall_at_1"] for row in rows}


def recipes_to_try(classes: int, dim: int, loss: str) -> list[Cell]:
    """The trainings among which the learning rates are chosen: without SEE, on held-out training classes."""
    return [Cell(classes, dim, loss, "off", 0, lr, scale, "fraction") for lr, scale in LEARNING_RATES]


def run_cells(cells: Iterable[Cell], found: Found, out: Path | None, processes: int) -> None:
    """Train the cells that are not in `found` yet, in their order; each goes into it and to the end of `out`."""
    waiting = [cell for cell in cells if cell not in found]
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        read_table("glyphs", places=(), cache=home.cache)  # rendered once, before the processes ask for it
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(processes, mp_context=context) as pool:
            running = {pool.submit(recall_of, cell, home): cell for cell in waiting}
            for done, future in enumerate(as_completed(running), start=1):
                cell = running[future]
                found[cell] = future.result()
                print(f"[{done}/{len(waiting)}] {cell}: {found[cell]:.2f}", flush=True)
                if out is not None:
                    with out.open("a") as stream:
                        stream.write(json.dumps({"cell": asdict(cell), "recall_at_1": found[cell]}) + "\n")


def print_table(found: Found, cells: Sequence[Cell]) -> None:
    print("\n| training classes | D | loss | R@1 without SEE | SEE, `proxies` | SEE, `all` |\n|---|---|---|---|---|---|")
    places: list[str] = []
    sides = list(dict.fromkeys((cell.classes, cell.dim) for cell in cells))
    losses = list(dict.fromkeys(cell.loss for cell in cells))
    for classes, dim in sides:
        for loss in losses:
            gains = [gain_of(found, _is(classes, dim, (loss,)), setting) for setting in SETTINGS[1:]]
            places += [_place(gain) for gain in gains if gain and gain.low is not None]
            _print_row(found, classes, dim, loss, (loss,), gains)
        gains = [gain_of(found, _is(classes, dim, losses), setting) for setting in SETTINGS[1:]]
        _print_row(found, classes, dim, "**together**", losses, gains)
    seeds = sorted({cell.seed for cell in found})
    print(
        f"\n{len(found)} trainings, seeds {', '.join(map(str, seeds))}. Of the {len(places)} intervals of single losses "
        f"{places.count('above')} lie above 0, {places.count('below')} below; chance alone puts about one in twenty outside. "
        "A row **together** takes every pair of a loss and a seed as one difference."
    )


def print_recipes(chosen: Sequence[Cell]) -> None:
    """The learning rates that were chosen, where each loss stands."""
    for cell in chosen:
        print(f"{cell.classes // 2} classes, D {cell.dim}, {cell.loss}: lr {cell.lr:g}, proxies {cell.proxies_lr_scale:g} x")


def gain_of(found: Found, chosen: Callable[[Cell], bool], setting: str) -> Interval | None:
    """The paired gain of `setting` over off, in points, over all chosen cells of which both sides were trained; None: no pair."""
    pairs = [
        (found[cell], found[off])
        for cell in found
        if chosen(cell) and cell.setting == setting and (off := _without_see(cell)) in found
    ]
    return paired_gain(*zip(*pairs, strict=True)) if pairs else None


def _print_row(found: Found, classes: int, dim: int, name: str, losses: Sequence[str], gains: Sequence[Interval | None]) -> None:
    without = [found[cell] for cell in found if _is(classes, dim, losses)(cell) and cell.setting == "off"]
    shown = f"{statistics.fmean(without):.1f}" if without else "-"
    print(f"| {classes // 2} | {dim} | {name} | {shown} | " + " | ".join(map(_shown, gains)) + " |")


def _is(classes: int, dim: int, losses: Sequence[str]) -> Callable[[Cell], bool]:
    return lambda cell: cell.classes == classes and cell.dim == dim and cell.loss in losses


def _without_see(cell: Cell) -> Cell:
    return replace(cell, setting="off")


def _place(gain: Interval) -> str:
    if gain.low is not None and gain.low > 0:
        return "above"
    return "below" if gain.high is not None and gain.high < 0 else "around"


def _shown(gain: Interval | None) -> str:
    if gain is None:
        return "-"
    if gain.low is None or gain.high is None:
        return f"{gain.mean:+.1f}"
    return f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", nargs="+", choices=PROXY_LOSSES, default=PROXY_LOSSES)
    parser.add_argument("--dims", nargs="+", type=int, default=[16, 128])
    parser.add_argument("--classes", nargs="+", type=int, choices=sorted(EPOCHS), default=sorted(EPOCHS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="trainings at a time, one thread each; 0: only the table")
    parser.add_argument("--out", type=Path, help="JSON lines, one a training; continued where it is there")
    options = parser.parse_args()
    sides = list(product(options.classes, options.dims, options.losses))
    found = read_found(options.out)
    tries = [cell for side in sides for cell in recipes_to_try(*side)]
    if options.processes:
        run_cells(tries, found, options.out, options.processes)
    best = {
        side: max((cell for cell in recipes_to_try(*side) if cell in found), key=found.__getitem__, default=None)
        for side in sides
    }
    cells = [
        replace(chosen, setting=setting, seed=seed, measured_on="test")
        for seed in range(options.seeds)  # seed by seed: a cut run has whole seeds
        for chosen in best.values()
        if chosen is not None
        for setting in SETTINGS
    ]
    if options.processes:
        run_cells(cells, found, options.out, options.processes)
    print_table({cell: found[cell] for cell in cells if cell in found}, cells)
    print_recipes([chosen for chosen in best.values() if chosen is not None])


if __name__ == "__main__":
    main()
