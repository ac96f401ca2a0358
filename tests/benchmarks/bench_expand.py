"""What `expand` costs beside two straightforward ways to do the same: a ratio for each, from one run.

    python tests/benchmarks/bench_expand.py [--device cuda] [--repetitions 31]

The three take turns, and medians are compared: a busy machine slows all of them alike. All three take proxies of any length,
draw their frames anew and return the same kind of result, which is checked first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from see_tune.method.expansion import expand, simplex_coefficients

BATCH = 72
SIZES = ((128, 8), (512, 8), (512, 16), (384, 64))
Expansion = Callable[[Tensor, Tensor, int], Tensor]


def expand_by_gram_schmidt(embeddings: Tensor, proxies: Tensor, n: int) -> Tensor:
    """Sample by sample and vector by vector, as Algorithm 1 is written; each step is one matrix product, nothing is copied."""
    vertices = simplex_coefficients(n, dtype=embeddings.dtype, device=embeddings.device)[1:]
    proxies = F.normalize(proxies, dim=-1)
    synthetic = torch.empty(len(embeddings), n, embeddings.shape[1], dtype=embeddings.dtype, device=embeddings.device)
    frame = torch.empty(n, embeddings.shape[1], dtype=embeddings.dtype, device=embeddings.device)
    for i, (z, w) in enumerate(zip(embeddings, proxies, strict=True)):
        similarity = z @ w
        r = z - similarity * w
        radius = r.norm()
        frame.normal_()
        frame[0] = r / radius
        for k in range(1, n):
            frame[k] -= (frame[k] @ w) * w + (frame[:k] @ frame[k]) @ frame[:k]
            frame[k] /= frame[k].norm()
        torch.addmm(similarity * w, radius * vertices, frame, out=synthetic[i])
    return synthetic


def expand_by_qr(embeddings: Tensor, proxies: Tensor, n: int) -> Tensor:
    """The whole batch at once, the frames by Householder QR."""
    proxies = F.normalize(proxies, dim=-1)
    similarity = (embeddings * proxies).sum(-1, keepdim=True)
    r = embeddings - similarity * proxies
    radius = r.norm(dim=-1, keepdim=True)
    draws = torch.randn(len(r), n - 1, r.shape[1], dtype=r.dtype, device=r.device)
    basis = torch.cat([proxies[:, None], (r / radius)[:, None], draws], dim=1)
    frame, upper = torch.linalg.qr(basis.mT)
    signs = upper.diagonal(dim1=-2, dim2=-1).sign()[:, 1:]
    vertices = simplex_coefficients(n, dtype=r.dtype, device=r.device)[1:] * (radius * signs)[:, None]
    return torch.baddbmm((similarity * proxies)[:, None].expand(-1, n, -1), vertices, frame[:, :, 1:].mT)


WAYS: dict[str, Expansion] = {"expand": expand, "Gram-Schmidt loop": expand_by_gram_schmidt, "batched QR": expand_by_qr}


def draw_pairs(dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    pair = F.normalize(torch.randn(2, BATCH, dim, device=device), dim=-1)
    return pair[0], pair[1]


def check(way: Expansion, embeddings: Tensor, proxies: Tensor, n: int) -> None:
    """A way that does not give a regular simplex is no rival."""
    points = torch.cat([embeddings[:, None], way(embeddings, proxies, n)], dim=1)
    images = points - (points @ proxies[:, :, None]) * proxies[:, None]
    centres = F.normalize(images, dim=-1)
    simplex = torch.full((n + 1, n + 1), -1 / n, device=points.device).fill_diagonal_(1)
    torch.testing.assert_close(centres @ centres.mT, simplex.expand(BATCH, -1, -1), rtol=0, atol=1e-4)
    torch.testing.assert_close(points.norm(dim=-1), torch.ones(BATCH, n + 1, device=points.device), rtol=0, atol=1e-5)


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_one_s(way: Expansion, embeddings: Tensor, proxies: Tensor, n: int) -> float:
    wait_for(embeddings.device)
    start = time.perf_counter()
    way(embeddings, proxies, n)
    wait_for(embeddings.device)
    return time.perf_counter() - start


def median_ms(dim: int, n: int, device: torch.device, repetitions: int) -> dict[str, float]:
    embeddings, proxies = draw_pairs(dim, device)
    for way in WAYS.values():
        check(way, embeddings, proxies, n)
    turns = [{name: time_one_s(way, embeddings, proxies, n) for name, way in WAYS.items()} for _ in range(repetitions)]
    return {name: 1e3 * statistics.median(turn[name] for turn in turns) for name in WAYS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repetitions", type=int, default=31)
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"expand, {BATCH} samples, {options.device}, {torch.get_num_threads()} threads, medians of {options.repetitions} turns")
    print(f"{'D':>4} {'n':>3}  {'expand':>10}  {'Gram-Schmidt loop':>18}  {'batched QR':>11}")
    for dim, n in SIZES:
        ms = median_ms(dim, n, torch.device(options.device), options.repetitions)
        loop, qr = (ms[name] / ms["expand"] for name in ("Gram-Schmidt loop", "batched QR"))
        print(f"{dim:4} {n:3}  {ms['expand']:7.2f} ms  {loop:16.1f} x  {qr:9.1f} x")


if __name__ == "__main__":
    main()
