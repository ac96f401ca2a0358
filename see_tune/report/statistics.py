"""The intervals that the numbers of a final phase are reported with: over training seeds, and over test classes.

The first says what another training would give, the second what other classes would: two questions, two intervals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from see_tune.results import Interval

_RESAMPLES = 10_000
_DRAWN_AT_ONCE = 2**22


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean and two-sided Student's t interval of independent values (one per training seed).

    Student's t knows nothing of where a metric ends: of few seeds the interval of a share may reach outside 0..1. It is
    recorded so, and cut where it is shown (numbers.py).

    >>> mean_interval([0.5])
    Interval(mean=0.5, low=None, high=None)
    """
    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean())
    if len(sample) < 2:
        return Interval(mean, None, None)
    half = float(stdtrit(len(sample) - 1, (1 + confidence) / 2) * sample.std(ddof=1) / np.sqrt(len(sample)))
    return Interval(mean, mean - half, mean + half)


def paired_gain(with_see: Sequence[float], without: Sequence[float]) -> Interval:
    """The mean difference between runs that share a seed, with its interval (paired t)."""
    return mean_interval([on - off for on, off in zip(with_see, without, strict=True)])


def mean_over_classes(
    values: NDArray[np.float64], labels: NDArray[np.int64], *, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """The mean over queries with its percentile bootstrap interval over classes.

    Queries of one class rise and fall together, so whole classes are drawn, with replacement, each with all its queries
    (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8). Of differences between two models at
    the same queries it is the paired bootstrap.

    values, labels: (Q,) a number of each query, and its class. A single class has no interval.
    """
    _, classes = np.unique(labels, return_inverse=True)
    sums, sizes = np.bincount(classes, weights=values), np.bincount(classes).astype(np.float64)
    mean = float(values.mean())
    if len(sizes) < 2:
        return Interval(mean, None, None)
    rng, at_once = np.random.default_rng(seed), max(1, _DRAWN_AT_ONCE // len(sizes))
    means = []
    for start in range(0, _RESAMPLES, at_once):
        drawn = rng.integers(0, len(sizes), (min(at_once, _RESAMPLES - start), len(sizes)))
        means.append(sums[drawn].sum(1) / sizes[drawn].sum(1))
    low, high = np.quantile(np.concatenate(means), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(mean, float(low), float(high))
