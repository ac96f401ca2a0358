"""Which images make up each mini-batch of an epoch: P classes x K images, for classes of any size.

A proxy loss learns from a batch's classes, SEE's expansion from its samples; both want a batch of many classes with K images
each. The batches are a pure function of (labels, seed, epoch), so a resumed epoch is the epoch that was interrupted.

How one epoch is made:
 1. Each class is shuffled and cut into groups of K. The last group is filled up from the class's own beginning, so classes
    smaller than K are drawn with repetition and every image of every class is in some group.
 2. The groups of a class are spread evenly over the epoch.
 3. Each group goes into the first batch that has room and not yet its class, so a batch has P different classes. Where there
    are fewer than P classes, each is in a batch ceil(P / C) times at most.
Gaps in the last batches are filled with random groups that they have not got yet, so no batch is dropped and no class left
out. What cannot be placed (a class with more groups than there are batches) is left out of this epoch, and `coverage` says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


def epoch_batches(
    labels: NDArray[np.int64], *, batch_size: int, images_per_class: int | None, seed: int, epoch: int
) -> list[Positions]:
    """The mini-batches of one epoch, as positions into `labels`.

    labels: (N,) any integers.
    batch_size: images a batch. With K = `images_per_class` it is (batch_size // K) * K.
    images_per_class: K; None: plain shuffling, where the last, incomplete batch is dropped unless it is the only one.

    Returns at least one batch; how many does not depend on the epoch. An image may be in a batch twice where its class is
    smaller than K.

    Raises:
        ValueError: no labels, or a batch too small for one class's images.
    """
    if len(labels) == 0:
        raise ValueError("no labels to draw batches from")
    if batch_size < max(images_per_class or 1, 1):
        raise ValueError(f"batch_size {batch_size} holds no class of images_per_class {images_per_class}")
    rng = np.random.default_rng(np.random.SeedSequence([seed % 2**64, epoch]))
    if images_per_class is None:
        return _shuffled(len(labels), batch_size, rng)
    members, owners = _groups(labels, images_per_class, rng)
    slots = _place(owners, batch_size // images_per_class, rng)
    return [members[groups].reshape(-1) for groups in slots]


def coverage(batches: Sequence[Positions], n: int) -> float:
    """The part of n images, 0..1, that is in at least one of the batches."""
    return len(np.unique(np.concatenate(batches))) / n


def _shuffled(n: int, batch_size: int, rng: np.random.Generator) -> list[Positions]:
    order = rng.permutation(n).astype(np.int64)
    full = n // batch_size * batch_size or n
    return [order[start : start + batch_size] for start in range(0, full, batch_size)]


def _groups(labels: NDArray[np.int64], size: int, rng: np.random.Generator) -> tuple[Positions, Positions]:
    """(G, size) positions of one class each, in the order in which they are to be placed, and (G,) their class 0..C-1."""
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    by_class = np.lexsort((rng.random(len(labels)), classes))  # shuffled within each class
    starts = np.cumsum(counts) - counts
    groups = -(-counts // size)
    owners = np.repeat(np.arange(len(counts)), groups)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(groups) - groups, groups)  # 0.. within the class
    within = (number[:, None] * size + np.arange(size)) % counts[owners, None]
    members = by_class[starts[owners, None] + within]
    order = np.argsort((number + rng.random(len(owners))) / groups[owners])  # evenly over the epoch
    return members[order], owners[order]


def _place(owners: Positions, per_batch: int, rng: np.random.Generator) -> list[list[int]]:
    """Group numbers of each batch: first fit under "each class at most `repeats` times a batch", then gaps filled."""
    classes = int(owners.max()) + 1
    repeats = math.ceil(per_batch / classes)
    batches: list[list[int]] = [[] for _ in range(math.ceil(len(owners) / per_batch))]
    next_batch, times_there = [0] * classes, [0] * classes
    open_batch = 0
    for group, owner in enumerate(owners.tolist()):
        batch = max(open_batch, next_batch[owner])
        while batch < len(batches) and len(batches[batch]) == per_batch:
            batch += 1
        if batch == len(batches):
            continue
        if batch != next_batch[owner]:
            next_batch[owner], times_there[owner] = batch, 0
        batches[batch].append(group)
        times_there[owner] += 1
        if times_there[owner] == repeats:
            next_batch[owner], times_there[owner] = batch + 1, 0
        while open_batch < len(batches) and len(batches[open_batch]) == per_batch:
            open_batch += 1
    if len(batches) > 1:
        _fill_gaps(batches, owners, per_batch, repeats, rng)
    return batches


def _fill_gaps(batches: list[list[int]], owners: Positions, per_batch: int, repeats: int, rng: np.random.Generator) -> None:
    """Complete each batch with groups of the classes that it has too few of, drawn at random."""
    for batch in batches:
        missing = per_batch - len(batch)
        if missing == 0:
            continue
        room = repeats - np.bincount(owners[batch], minlength=int(owners.max()) + 1)
        candidates = rng.permutation(np.flatnonzero(room[owners] > 0))
        for group in candidates.tolist():
            if missing == 0:
                break
            if group not in batch and room[owners[group]] > 0:
                batch.append(group)
                room[owners[group]] -= 1
                missing -= 1
