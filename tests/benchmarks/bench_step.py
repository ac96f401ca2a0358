"""A training step with SEE against the same step without, printed as ratios: what SEE costs where it is used.

    python tests/benchmarks/bench_step.py [--threads 2] [--device auto] [--pairs 8] [--resnet-batch 90]

n 8 and share 0.4 (the published end of the pace), Proxy Anchor on ResNet-50 at 224 px and normalised softmax on the glyphs'
backbone. Steps alternate, and a ratio is the median over neighbouring pairs, so that other work on the machine hits both sides
alike. On a CPU times are the process's CPU time; on CUDA those of events, and the host's time for enqueuing a step stands beside
them: a synchronisation would show there.
"""

from __future__ import annotations

import argparse
import statistics
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from see_tune.spec.models import TrialSpec
from see_tune.training.parts import make_loss, make_model, make_preprocessing, make_state, pick_device
from see_tune.training.state import TrainingState

WARMUP_STEPS = 2


@dataclass(frozen=True)
class Case:
    name: str
    backbone: str
    loss: str
    embedding_dim: int
    classes: int
    batch: int
    at_most: float


def spec_of(case: Case, *, see: bool) -> TrialSpec:
    return TrialSpec.model_validate(
        {
            "dataset": {"name": "glyphs"},
            "model": {"backbone": case.backbone, "weights": "none", "embedding_dim": case.embedding_dim},
            "loss": {"name": case.loss},
            "see": {"enabled": see, "n_aug": 8, "pace": {"shape": "constant", "end_share": 0.4}},
            "train": {"batch_size": case.batch, "freeze_backbone_epochs": 0},
        }
    )


def build(case: Case, device: torch.device, *, see: bool) -> TrainingState:
    spec = spec_of(case, see=see)
    state = make_state(spec, make_model(spec, make_preprocessing(spec), weights="none"), make_loss(spec, case.classes), device)
    state.begin_epoch(1)
    return state


def timed_step(state: TrainingState, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """(duration, host's part of it) of one step, in ms."""
    if state.device.type != "cuda":
        started = time.process_time()
        state.step(images, labels, 1)
        duration = (time.process_time() - started) * 1e3
        return duration, duration
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    started = time.perf_counter()
    begin.record()
    state.step(images, labels, 1)
    end.record()
    host = (time.perf_counter() - started) * 1e3
    torch.cuda.synchronize()
    return begin.elapsed_time(end), host


def peak_mb(state: TrainingState, images: Tensor, labels: Tensor) -> float:
    """The most memory that one step holds at a time, in MiB: on CUDA of all tensors, on a CPU beyond those before the step."""
    if state.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        state.step(images, labels, 1)
        return torch.cuda.max_memory_allocated() / 2**20
    with _LiveTensors() as live:
        state.step(images, labels, 1)
    return live.peak / 2**20


class _LiveTensors(TorchDispatchMode):
    """Bytes of the tensors made while it is entered: how many live now, and the most at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, operator: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if (key := storage._cdata) not in self._live:
                    self._live[key] = storage.nbytes()
                    weakref.finalize(storage, self._live.pop, key, None)
        self.peak = max(self.peak, sum(self._live.values()))
        return result


def measure(case: Case, device: torch.device, pairs: int) -> None:
    off, on = (build(case, device, see=see) for see in (False, True))
    size = make_preprocessing(off.spec).image_size
    images = torch.randn(case.batch, 3, size, size, device=device)
    labels = (torch.arange(case.batch, device=device) // 2) % case.classes
    for _ in range(WARMUP_STEPS):
        for state in (off, on):
            state.step(images, labels, 1)
    times = []
    for turn in range(pairs):
        first, second = (off, on) if turn % 2 else (on, off)
        one, other = timed_step(first, images, labels), timed_step(second, images, labels)
        times.append((one, other) if turn % 2 else (other, one))
    ratio = statistics.median(with_see[0] / without[0] for without, with_see in times)
    without, with_see = (statistics.median(pair[side][0] for pair in times) for side in (0, 1))
    print(f"{case.name}: {without:.1f} ms without SEE, {with_see:.1f} with: {ratio:.3f} x (at most {case.at_most})")
    memory = [peak_mb(state, images, labels) for state in (off, on)]
    print(f"  peak memory {memory[0]:.1f} MiB, {memory[1] - memory[0]:+.1f} with SEE")
    if device.type == "cuda":
        hosts = [statistics.median(pair[side][1] for pair in times) for side in (0, 1)]
        print(f"  the host's part {hosts[0]:.1f} ms, {hosts[1]:.1f} with SEE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--resnet-batch", type=int, default=None, help="default: 90 on CUDA, 12 on a CPU")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = pick_device(arguments.device)
    batch = arguments.resnet_batch or (90 if device.type == "cuda" else 12)
    print(f"{device}, {arguments.threads} threads, torch {torch.__version__}")
    for case, pairs in (
        (Case("glyphnet, 32 px, batch 90, D 16", "glyphnet", "nsoftmax", 16, 100, 90, 1.25), 10 * arguments.pairs),
        (Case(f"resnet50, 224 px, batch {batch}, D 512", "resnet50", "proxy_anchor", 512, 98, batch, 1.02), arguments.pairs),
    ):
        measure(case, device, pairs)


if __name__ == "__main__":
    main()
