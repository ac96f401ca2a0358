"""Intervals over training seeds, as every number of a final phase is reported with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from see_tune.results import Interval


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean and two-sided Student's t interval of independent values (one per training seed).

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
