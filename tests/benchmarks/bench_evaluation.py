"""What evaluation costs against the bare matrix products, in time and in memory, and against pytorch-metric-learning.

    python tests/benchmarks/bench_evaluation.py                    60,502 x 512, 11,316 classes (the size of SOP's test set)
    python tests/benchmarks/bench_evaluation.py --rows 12000       quick

Two sets of embeddings: drawn at random, where a positive is no nearer than anything else, and gathered around class
centres as a trained model's are, where most positives must be placed among the R nearest.
Targets: Recall@k 1.3 x the products, with MAP@R and R-precision 1.6 x, 1.5 GB above the embeddings.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import Tensor

from see_tune.evaluation import evaluate_embeddings

ROWS_PER_CLASS = 60502 / 11316
KS = (1, 10, 100, 1000)
BLOCK = 1024
PML_ROWS = 20_000
PARTS = ("random", "centres", "pml")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60502)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="the fastest of so many runs counts")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if "random" in options.parts:
        compare_with_products(*draw(options.rows, options.dim, noise=None), options.repeats, "random")
    if "centres" in options.parts:
        compare_with_products(*draw(options.rows, options.dim, noise=2.0), options.repeats, "around class centres")
    if "pml" in options.parts:
        compare_with_pytorch_metric_learning(*draw(min(options.rows, PML_ROWS), options.dim, noise=2.0), options.repeats)


def draw(rows: int, dim: int, noise: float | None) -> tuple[Tensor, Tensor]:
    """Unit rows and their labels; `noise` is the length of what is added to the unit class centres, None has no centres."""
    generator = torch.Generator().manual_seed(0)
    classes = max(1, round(rows / ROWS_PER_CLASS))
    labels = (torch.arange(rows) % classes)[torch.randperm(rows, generator=generator)]
    embeddings = torch.randn(rows, dim, generator=generator)
    if noise is not None:
        centres = torch.nn.functional.normalize(torch.randn(classes, dim, generator=generator))
        embeddings = embeddings.mul_(noise / dim**0.5).add_(centres[labels])
    return torch.nn.functional.normalize(embeddings), labels


def compare_with_products(embeddings: Tensor, labels: Tensor, repeats: int, name: str) -> None:
    bare_s, _ = measure(lambda: multiply(embeddings), repeats)
    print(f"\n{len(embeddings):,} x {embeddings.shape[1]}, {name}: bare products {bare_s:.2f} s")
    for what, within_r, target in (("Recall@k", False, 1.3), ("with MAP@R, R-precision", True, 1.6)):
        metrics: dict[str, float] = {}

        def evaluate(into: dict[str, float] = metrics, within_r: bool = within_r) -> None:
            into.update(evaluate_embeddings(embeddings, labels, ks=KS, within_r=within_r))

        seconds, megabytes = measure(evaluate, repeats)
        shown = ", ".join(f"{key} {value:.4f}" for key, value in metrics.items() if key in {"recall_at_1", "map_at_r"})
        print(f"  {what:24} {seconds:7.2f} s   {seconds / bare_s:5.2f} x (target {target})   +{megabytes:5.0f} MB   {shown}")


def multiply(embeddings: Tensor) -> None:
    block = embeddings.new_empty(BLOCK, len(embeddings))
    for start in range(0, len(embeddings), BLOCK):
        rows = embeddings[start : start + BLOCK]
        torch.mm(rows, embeddings.T, out=block[: len(rows)])


def compare_with_pytorch_metric_learning(embeddings: Tensor, labels: Tensor, repeats: int) -> None:
    calculator = AccuracyCalculator(include=("precision_at_1",), device=torch.device("cpu"))
    theirs: dict[str, float] = {}
    ours: dict[str, float] = {}
    theirs_s, _ = measure(lambda: theirs.update(calculator.get_accuracy(embeddings, labels)), repeats)
    ours_s, _ = measure(lambda: ours.update(evaluate_embeddings(embeddings, labels, ks=(1,), within_r=False)), repeats)
    print(f"\n{len(embeddings):,} x {embeddings.shape[1]}: AccuracyCalculator {theirs_s:.2f} s, here {ours_s:.2f} s")
    print(f"  precision_at_1 {theirs['precision_at_1']:.6f}, recall_at_1 {ours['recall_at_1']:.6f}")


def measure(work: Callable[[], None], repeats: int) -> tuple[float, float]:
    """(seconds of the fastest run, peak megabytes above what was held before)."""
    seconds = []
    for _ in range(repeats):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: start a new peak
        before_mb = read_megabytes("VmRSS")
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
        peak_mb = read_megabytes("VmHWM") - before_mb
    return min(seconds), peak_mb


def read_megabytes(field: str) -> float:
    status = Path("/proc/self/status").read_text()
    match = re.search(rf"{field}:\s+(\d+) kB", status)
    if match is None:
        raise RuntimeError(f"/proc/self/status has no {field}")
    return int(match[1]) / 1024


if __name__ == "__main__":
    main()
