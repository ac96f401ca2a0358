"""Numbers as people read them: recalls in percent with one decimal, differences in points with a sign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from see_tune.results import Interval, Looks, StudyResult
from see_tune.wording import counted

_SHORT = {"see.n_aug": "n", "see.lambda": "l", "see.pace.end_share": "end", "see.pace.ramp": "r", "see.gradient": ""}


def percent(share: float) -> str:
    """``83.2``"""
    return f"{100 * share:.1f}"


def points(difference: float) -> str:
    """``+7.4``; ``+0.0`` for what rounds to it from below."""
    return f"{100 * difference:+z.1f}"


def with_spread(interval: Interval, sign: str = "± ") -> str:
    """``83.2 ± 3.2``: the mean and half of its 95 % interval; ``95.0 [82.3, 100.0]`` where that would leave 0..100; the mean
    alone where one seed gives no interval."""
    if interval.low is None or interval.high is None:
        return percent(interval.mean)
    if interval.low < 0 or interval.high > 1:
        return f"{percent(interval.mean)} {share_range(interval)}"
    return f"{percent(interval.mean)} {sign}{percent(interval.high - interval.mean)}"


def share_range(interval: Interval) -> str:
    """``[82.3, 100.0]``: the interval of a share, cut where shares end; Student's t knows of no ends. Empty without one."""
    if interval.low is None or interval.high is None:
        return ""
    return f"[{percent(max(interval.low, 0.0))}, {percent(min(interval.high, 1.0))}]"


def gain_range(gain: Interval) -> str:
    """``+7.4 [+1.0, +13.7]``, cut where differences of shares end."""
    if gain.low is None or gain.high is None:
        return points(gain.mean)
    return f"{points(gain.mean)} [{points(max(gain.low, -1.0))}, {points(min(gain.high, 1.0))}]"


def gain_verdict(gain: Interval) -> str:
    """What may be said of a gain: nothing, as long as its interval holds 0."""
    if gain.low is None or gain.high is None:
        return "one seed: no interval"
    if gain.low <= 0 <= gain.high:
        return "no gain shown"
    return "gain" if gain.mean > 0 else "loss"


def baseline_ahead(result: StudyResult) -> str:
    """What is to be said where SEE off did better on validation than SEE with the best values found; empty elsewhere."""
    see, off = result.see, result.off
    if see is None or off is None or not see.see_enabled or result.protocol == "paper":  # which has no validation, nor a champion
        return ""
    (metric, with_see), without = next(iter(see.validation.items())), off.validation
    if without.get(metric, with_see) <= with_see:
        return ""
    return "SEE off did better on validation" + (", and is what was registered" if off.test_mean else "")


def duration(seconds: float) -> str:
    """``42 s``, ``3 min 12 s``, ``11 h 04 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def device_hours(hours: float) -> str:
    """``0.013 device-hours``, ``41.2 device-hours``"""
    return f"{hours:.{1 if hours >= 1 else 3}f} device-hours"


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


def describe_values(values: Mapping[str, Any]) -> str:
    """Searched values in one short line: ``n12 l.31 end.62 r.55``."""
    return " ".join(f"{_SHORT.get(name, name.rpartition('.')[2] + ' ')}{_short(value)}" for name, value in values.items())


def _short(value: Any) -> str:
    return f"{value:.2g}".removeprefix("0") if isinstance(value, float) else str(value)
