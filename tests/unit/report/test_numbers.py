"""How numbers are said."""

from __future__ import annotations

import pytest

from see_tune.report.numbers import duration, gain_range, gain_verdict, metric_title, setting, share_range, with_spread
from see_tune.results import Interval


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (Interval(0.004, -0.001, 0.009), "no gain shown"),
        (Interval(0.004, 0.0, 0.008), "no gain shown"),
        (Interval(0.004, 0.001, 0.007), "gain"),
        (Interval(-0.004, -0.007, -0.001), "loss"),
        (Interval(0.004, None, None), "one seed: no interval"),
    ],
)
def test_a_gain_is_called_one_only_where_its_interval_lies_above_zero(gain: Interval, verdict: str) -> None:
    assert gain_verdict(gain) == verdict


def test_intervals_are_in_percent_and_points() -> None:
    assert with_spread(Interval(0.8322, 0.8004, 0.864)) == "83.2 ± 3.2"
    assert with_spread(Interval(0.8322, None, None)) == "83.2"
    assert gain_range(Interval(0.004, -0.001, 0.009)) == "+0.4 [-0.1, +0.9]"
    assert gain_range(Interval(-0.0004, -0.0001, 0.0)) == "+0.0 [+0.0, +0.0]"  # no difference has no sign


def test_no_shown_interval_leaves_the_range_of_its_metric() -> None:
    assert with_spread(Interval(0.95, 0.8230, 1.077)) == "95.0 [82.3, 100.0]"
    assert share_range(Interval(0.02, -0.1, 0.14)) == "[0.0, 14.0]"
    assert gain_range(Interval(0.1, -1.2, 1.4)) == "+10.0 [-100.0, +100.0]"


def test_names_settings_and_durations_are_short() -> None:
    assert [metric_title(name) for name in ("test/recall_at_10", "val/map_at_r")] == ["R@10", "MAP@R"]
    assert [setting(value) for value in (0.8298, 12, True, "all")] == ["0.83", "12", "true", "all"]
    assert [duration(seconds) for seconds in (42, 192, 39840)] == ["42 s", "3 min 12 s", "11 h 04 min"]
