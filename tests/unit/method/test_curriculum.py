"""The pace: the published formula, and what must hold for every shape."""

import itertools
import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from see_tune.method.curriculum import Shape, expanded_count, first_epoch_reaching, share_at

SHAPES = get_args(Shape)
shapes, shares, ramps, horizons = st.sampled_from(SHAPES), st.floats(0, 1), st.floats(0.01, 1), st.integers(1, 300)


def published_share(epoch: int, epochs: int, end: float = 0.4) -> float:
    """The schedule of the published code, with start 0."""
    last = min(epochs, 200)
    return end - end * (1 + math.cos(math.pi * min(epoch, last) / last)) / 2


@pytest.mark.parametrize("epochs", [60, 100, 150, 200, 300, 500, 777])
def test_cosine_pace_is_the_published_schedule(epochs: int) -> None:
    last = min(epochs, 200)
    for epoch in (0, 1, last // 2, last, last + 50):
        share = share_at(epoch, epochs, shape="cosine", start_share=0, end_share=0.4, ramp=min(1, 200 / epochs))
        assert share == pytest.approx(published_share(epoch, epochs), abs=1e-9)


def test_linear_pace_is_half_way_in_the_middle_of_its_ramp() -> None:
    assert share_at(25, 100, shape="linear", start_share=0.2, end_share=0.6, ramp=0.5) == pytest.approx(0.4)


@pytest.mark.parametrize(("epoch", "share"), [(0, 0.1), (199, 0.1), (200, 0.7), (301, 0.7)])
def test_step_pace_jumps_when_the_ramp_is_over(epoch: int, share: float) -> None:
    # 200 / (200 / 302 * 302) is below 1 in floating point.
    assert share_at(epoch, 302, shape="step", start_share=0.1, end_share=0.7, ramp=200 / 302) == share


def test_constant_pace_is_at_its_end_from_the_first_epoch() -> None:
    assert share_at(0, 100, shape="constant", start_share=0, end_share=0.4, ramp=1) == 0.4


@given(shapes, shares, shares, ramps, horizons)
def test_share_goes_one_way_from_start_to_end(shape: Shape, start: float, end: float, ramp: float, epochs: int) -> None:
    path = [share_at(e, epochs, shape=shape, start_share=start, end_share=end, ramp=ramp) for e in range(epochs + 1)]
    tolerance = 1e-9
    assert path[0] == pytest.approx(end if shape == "constant" else start, abs=tolerance)
    assert path[-1] == pytest.approx(end, abs=tolerance)
    rising = 1 if end >= start else -1
    assert all(rising * (after - before) >= -tolerance for before, after in itertools.pairwise(path))


@pytest.mark.parametrize(("share", "count"), [(0, 0), (0.004, 0), (0.4, 36), (1, 90), (1.5, 90)])
def test_count_is_the_rounded_share_of_the_batch(share: float, count: int) -> None:
    assert expanded_count(90, share) == count


@pytest.mark.parametrize(
    ("shape", "ramp", "epoch"),
    [("cosine", 1.0, 51), ("linear", 0.5, 26), ("step", 0.3, 31), ("constant", 1.0, 1), ("step", 1.0, 100)],
)
def test_first_epoch_at_half_of_the_end_share(shape: Shape, ramp: float, epoch: int) -> None:
    assert first_epoch_reaching(0.5, 100, shape=shape, start_share=0, end_share=0.4, ramp=ramp) == epoch


rising_paces = st.builds(
    lambda shape, ends, ramp: {"shape": shape, "start_share": min(ends), "end_share": max(ends), "ramp": ramp},
    shapes,
    st.tuples(shares, shares),
    ramps,
)


@given(rising_paces, ramps, shares, shares, horizons)
def test_a_faster_pace_or_a_nearer_goal_is_never_reached_later(
    pace: dict[str, Any], other_ramp: float, goal: float, other_goal: float, epochs: int
) -> None:
    faster, slower = (pace | {"ramp": choose(pace["ramp"], other_ramp)} for choose in (min, max))
    near, far = sorted((goal, other_goal))
    assert first_epoch_reaching(near, epochs, **faster) <= first_epoch_reaching(far, epochs, **slower)


@given(rising_paces, shares, horizons)
def test_first_epoch_has_the_share_and_the_one_before_has_not(pace: dict[str, Any], goal: float, epochs: int) -> None:
    first = first_epoch_reaching(goal, epochs, **pace)
    trained = [share_at(epoch, epochs, **pace) for epoch in range(first)]
    assert 1 <= first <= epochs
    assert all(share < goal * pace["end_share"] for share in trained[:-1])
    assert first == epochs or trained[-1] >= goal * pace["end_share"] - 1e-9
