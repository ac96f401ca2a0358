"""Intervals over training seeds, against scipy and known answers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from see_tune.report.statistics import mean_interval, mean_over_classes, paired_gain


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


def drawn_queries(seed: int, classes: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Differences of hits, -1, 0 or 1, at the queries of classes of 1 to 20 queries, each with a rate of its own."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), rng.integers(1, 21, classes))
    rates = np.clip(rng.normal(0.7, 0.2, classes), 0, 0.97)[labels]
    return (rng.uniform(size=len(labels)) < rates + 0.03).astype(float) - (rng.uniform(size=len(labels)) < rates), labels


def test_interval_over_classes_equals_scipys_bootstrap_of_the_classes() -> None:
    values, labels = drawn_queries(0)
    sums, sizes = (np.bincount(labels, weights) for weights in (values, np.ones_like(values)))
    theirs = stats.bootstrap(
        (sums, sizes),
        lambda sums, sizes, axis: sums.sum(axis) / sizes.sum(axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=50_000,
        rng=np.random.default_rng(1),
    )
    found = mean_over_classes(values, labels)
    assert found.mean == pytest.approx(values.mean())
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval), abs=0.03 * width)


def test_interval_over_classes_equals_a_loop_that_draws_whole_classes() -> None:
    values, labels = drawn_queries(2, classes=5)
    rng, means = np.random.default_rng(3), []
    for _ in range(10_000):
        rows = [row for drawn in rng.integers(0, 5, 5) for row in np.flatnonzero(labels == drawn)]
        means.append(values[rows].mean())
    found = mean_over_classes(values, labels, seed=3)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_queries_that_rise_and_fall_with_their_class_are_worth_one_class_not_many() -> None:
    rng = np.random.default_rng(0)
    of_class = rng.normal(0.0, 1.0, 40)
    once, repeated = (mean_over_classes(np.repeat(of_class, n), np.repeat(np.arange(40), n)) for n in (1, 50))
    assert (repeated.low, repeated.high) == pytest.approx((once.low, once.high))


def test_interval_over_classes_covers_the_truth_in_95_of_100_test_sets() -> None:
    # The percentile bootstrap of a mean of 30 is a little narrow: Student's factor and n - 1 are missing.
    found = [mean_over_classes(*drawn_queries(seed)) for seed in range(200)]
    assert np.mean([interval.low <= 0.03 <= interval.high for interval in found]) == pytest.approx(0.94, abs=0.04)


def test_a_single_class_has_no_interval() -> None:
    found = mean_over_classes(np.array([0.0, 1.0]), np.array([7, 7]))
    assert (found.mean, found.low, found.high) == (0.5, None, None)
