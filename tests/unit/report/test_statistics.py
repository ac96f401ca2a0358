"""Intervals over training seeds, against scipy and known answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from see_tune.report.statistics import mean_interval, paired_gain


def test_interval_equals_scipys_student_t_interval() -> None:
    values = [0.842, 0.851, 0.847, 0.855, 0.849]
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    found = mean_interval(values)
    assert (found.mean, found.low, found.high) == pytest.approx((np.mean(values), low, high))


def test_two_values_a_point_apart_have_the_textbook_interval() -> None:
    # t(0.975, 1) = 12.706; half width = 12.706 * (sqrt(0.5) / sqrt(2)) = 6.353
    assert mean_interval([0.0, 1.0]).high == pytest.approx(0.5 + 6.3531, abs=1e-4)


def test_single_seed_has_no_interval() -> None:
    assert (mean_interval([0.5]).low, mean_interval([0.5]).high) == (None, None)


def test_gain_is_paired_by_seed_and_not_by_the_spread_between_seeds() -> None:
    gain = paired_gain([0.50, 0.70, 0.90], [0.49, 0.69, 0.89])
    assert (gain.mean, gain.low, gain.high) == pytest.approx((0.01, 0.01, 0.01))


def test_interval_covers_the_truth_in_95_of_100_studies() -> None:
    draws = np.random.default_rng(0).normal(0.0, 1.0, (2000, 5))
    covered = np.mean([(low := mean_interval(row)).low <= 0 <= low.high for row in draws])
    assert covered == pytest.approx(0.95, abs=0.015)
