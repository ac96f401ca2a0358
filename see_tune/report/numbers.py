"""Numbers as people read them: recalls in percent with one decimal, differences in points with a sign."""

from __future__ import annotations

from see_tune.results import Interval, Looks
from see_tune.wording import counted


def percent(share: float) -> str:
    """``83.2``"""
    return f"{100 * share:.1f}"


def points(difference: float) -> str:
    """``+7.4``; ``+0.0`` for what rounds to it from below."""
    return f"{100 * difference:+z.1f}"


def with_spread(interval: Interval) -> str:
    """``83.2 ± 3.2``: the mean and half of its 95 % interval; the mean alone where one seed gives no interval."""
    return percent(interval.mean) + (f" ± {percent(interval.high - interval.mean)}" if interval.high is not None else "")


def gain_range(gain: Interval) -> str:
    """``+7.4 [+1.0, +13.7]``"""
    ends = f" [{points(gain.low)}, {points(gain.high)}]" if gain.low is not None and gain.high is not None else ""
    return points(gain.mean) + ends


def gain_verdict(gain: Interval) -> str:
    """What may be said of a gain: nothing, as long as its interval holds 0."""
    if gain.low is None or gain.high is None:
        return "one seed: no interval"
    if gain.low <= 0 <= gain.high:
        return "no gain shown"
    return "gain" if gain.mean > 0 else "loss"


def duration(seconds: float) -> str:
    """``42 s``, ``3 min 12 s``, ``11 h 04 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def looked_at(looks: Looks) -> str:
    """``looked at 12 times by 2 studies, once by hand``"""
    found = [f"{_times(looks.times)} by {counted(looks.studies, 'study')}"] if looks.times else []
    return "looked at " + ", ".join(found + ([f"{_times(looks.by_hand)} by hand"] if looks.by_hand else []))


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def setting(value: object) -> str:
    """A searched value: floats in three digits that count."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def metric_title(name: str) -> str:
    """``test/recall_at_1`` -> ``R@1``; ``val/map_at_r`` -> ``MAP@R``."""
    stem = name.rpartition("/")[2]
    if stem.startswith("recall_at_"):
        return f"R@{stem.removeprefix('recall_at_')}"
    return {"map_at_r": "MAP@R", "r_precision": "R-precision"}.get(stem, stem)
