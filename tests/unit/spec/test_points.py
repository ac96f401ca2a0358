from __future__ import annotations

import pytest

from see_tune.errors import SpecError
from see_tune.spec.load import Loaded, parse_study

SEARCH = """study: s
dataset: {name: cars196}
search:
  see.n_aug: {int: [1, 64]}
  see.pace.ramp: {float: [0.1, 1.0]}
"""


def load(rest: str = "", search: str = "") -> Loaded:
    return parse_study(f"{SEARCH}{search}{rest}", "f.yaml")


def test_trial_zero_is_the_files_own_values() -> None:
    assert load("see: {n_aug: 12}\n").trial_zero == {"see.n_aug": 12, "see.pace.ramp": 1.0}


def test_trial_zero_leaves_out_what_is_inactive() -> None:
    search = "  loss.name: {choice: [proxy_anchor, arcface]}\n  loss.arcface.margin: {float: [40, 50]}\n"
    assert load(search=search).trial_zero == {"see.n_aug": 8, "see.pace.ramp": 1.0, "loss.name": "proxy_anchor"}


def test_trial_zero_takes_the_type_of_its_range() -> None:
    zero = load(search="  loss.proxy_anchor.alpha: {int: [16, 64]}\n").trial_zero
    assert zero is not None
    assert type(zero["loss.proxy_anchor.alpha"]) is int


def test_a_default_outside_its_range_leaves_trial_zero_to_the_sampler() -> None:
    loaded = load(search="  see.lambda: {float: [0.5, 1.0]}\n")
    assert loaded.trial_zero is None
    assert "the default 0.2 lies outside" in loaded.warnings[0]


def test_a_null_default_is_no_point_of_a_range() -> None:
    assert load(search="  train.optimizer.proxies_weight_decay: {float: [0, 0.1]}\n").trial_zero is None


def test_points_are_nested_or_dotted() -> None:
    loaded = load("start_with: [{see: {n_aug: 4, pace: {ramp: 0.5}}}, {see.n_aug: 2}]\n")
    assert loaded.points == ({"see.n_aug": 4, "see.pace.ramp": 0.5}, {"see.n_aug": 2})


@pytest.mark.parametrize("point", ["{see.enabled: false}", "{see: {enabled: false}}"])
def test_see_off_is_the_baseline_that_runs_anyway(point: str) -> None:
    assert load(f"start_with: [{point}]\n").points == ()


def test_see_off_is_a_point_where_it_is_searched() -> None:
    loaded = load("start_with: [{see.enabled: false}]\n", "  see.enabled: {choice: [true, false]}\n")
    assert loaded.points == ({"see.enabled": False},)


@pytest.mark.parametrize("point", ["{see.enabled: true}", "{see.enabled: 0}", "{see.enabled: false, see.n_aug: 4}"])
def test_no_other_unsearched_point_is_taken(point: str) -> None:
    with pytest.raises(SpecError, match=r"see.enabled: is not searched"):
        load(f"start_with: [{point}]\n")


def test_a_point_may_not_name_what_it_makes_inactive() -> None:
    with pytest.raises(SpecError, match=r"see.n_aug: is not active where see.enabled is False"):
        load("start_with: [{see.n_aug: 4, see.enabled: false}]\n", "  see.enabled: {choice: [true, false]}\n")
