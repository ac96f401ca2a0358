"""The value that decides is named first; too few or equal trials name none."""

from __future__ import annotations

import numpy as np

from see_tune.report.importance import importances, in_words
from see_tune.results import TrialResult
from see_tune.search.rows import FinishedRow
from see_tune.spec.space import Choice, FloatRange, Parameter, Space

SPACE = Space(
    (
        Parameter("see.lambda", FloatRange(0.0, 2.0)),
        Parameter("see.pace.ramp", FloatRange(0.0, 1.0)),
        Parameter("see.gradient", Choice(("proxies", "all"))),
    ),
    {},
)


def rows(count: int, *, flat: bool = False) -> list[FinishedRow]:
    """Random points whose value is highest at lambda 1, and hangs on nothing else."""
    draws = np.random.default_rng(0).uniform(size=(count, 3))
    found = []
    for number, (weight, ramp, coin) in enumerate(draws.tolist()):
        values = {"see.lambda": 2 * weight, "see.pace.ramp": ramp, "see.gradient": "all" if coin < 0.5 else "proxies"}
        value = 0.5 if flat else 1 - (2 * weight - 1) ** 2
        found.append(FinishedRow(number, f"t{number:03d}", values, {}, TrialResult("complete"), value, 1.0))
    return found


def test_the_value_that_decides_comes_first_and_shares_sum_to_one() -> None:
    shares = importances(rows(80), SPACE)
    assert next(iter(shares)) == "see.lambda"
    assert shares["see.lambda"] > 0.5
    assert sum(shares.values()) == 1.0 or abs(sum(shares.values()) - 1) < 1e-9


def test_equal_results_name_no_value() -> None:
    assert importances(rows(20, flat=True), SPACE) == {}
    assert "too equal" in in_words({}, 20)


def test_a_few_trials_are_called_a_hint() -> None:
    assert "a hint, not a finding" in in_words(importances(rows(8), SPACE), 8)
    assert "hint" not in in_words(importances(rows(80), SPACE), 80)
