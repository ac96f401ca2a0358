"""A trial fits a study where some point of its space trains exactly the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from see_tune.spec.fitting import fitted, trained
from see_tune.spec.load import Loaded, parse_study

HEAD = "study: s\ndataset: {name: cars196}\n"
OLD = HEAD + "search: {see.n_aug: {int: [1, 64]}, see.gradient: {choice: [proxies, all]}}\n"
POINT: dict[str, Any] = {"see.n_aug": 12, "see.gradient": "all"}


def load(text: str) -> Loaded:
    return parse_study(text, "study.yaml")


def fit(new: str, old: str = OLD, point: dict[str, Any] = POINT) -> dict[str, Any] | None:
    loaded = load(new)
    return fitted(trained(load(old).spec, point), loaded.spec, loaded.space)


def test_a_title_changes_no_number_so_trials_from_before_it_fit() -> None:
    own = OLD.replace("{name: cars196}", "{name: manifest, root: birds.csv}")
    assert fit(own.replace("birds.csv", "birds.csv, title: birds"), own) == POINT


@pytest.mark.parametrize(
    ("search", "point"),
    [
        ("{see.n_aug: {int: [1, 100]}, see.gradient: {choice: [proxies, all]}}", POINT),
        ("{see.n_aug: {int: [12, 13]}, see.gradient: {choice: [all, proxies]}}", POINT),
        ("{see.n_aug: {int: [1, 11]}, see.gradient: {choice: [proxies, all]}}", None),
        ("{see.n_aug: {int: [1, 13], step: 2}, see.gradient: {choice: [proxies, all]}}", None),
        ("{see.n_aug: {choice: [12, 24]}, see.gradient: {choice: [proxies, all]}}", POINT),
        (
            "{see.n_aug: {int: [1, 64]}, see.gradient: {choice: [proxies, all]}, see.lambda: {float: [0.1, 1]}}",
            {**POINT, "see.lambda": 0.2},
        ),
        ("{see.n_aug: {int: [1, 64]}, see.gradient: {choice: [proxies, all]}, see.lambda: {float: [0.3, 1]}}", None),
        ("{see.n_aug: {int: [1, 64]}}", None),  # see.gradient is fixed at proxies now, and this trial had all
    ],
)
def test_what_a_changed_space_makes_of_a_trial(search: str, point: dict[str, Any] | None) -> None:
    assert fit(f"{HEAD}search: {search}\n") == point


def test_key_that_is_no_longer_searched_keeps_the_trials_with_its_fixed_value() -> None:
    new = f"{HEAD}see: {{gradient: all}}\nsearch: {{see.n_aug: {{int: [1, 64]}}}}\n"
    assert fit(new) == {"see.n_aug": 12}


def test_added_key_has_the_value_that_was_fixed_then_and_not_the_files_of_now() -> None:
    new = f"{HEAD}see: {{lambda: 0.9}}\nsearch: {{see.n_aug: {{int: [1, 64]}}, see.lambda: {{float: [0.1, 1]}}}}\n"
    old = f"{HEAD}search: {{see.n_aug: {{int: [1, 64]}}}}\n"
    assert fit(new, old, {"see.n_aug": 12}) == {"see.n_aug": 12, "see.lambda": 0.2}


def test_whole_number_fits_a_range_of_numbers() -> None:
    old = f"{HEAD}search: {{see.lambda: {{choice: [1, 2]}}}}\n"
    assert fit(f"{HEAD}search: {{see.lambda: {{float: [0.5, 2]}}}}\n", old, {"see.lambda": 1.0}) == {"see.lambda": 1.0}


def test_inactive_parameter_is_not_in_the_point() -> None:
    search = "search: {loss.name: {choice: [proxy_anchor, arcface]}, loss.arcface.margin: {float: [10, 30]}}\n"
    assert fit(HEAD + search, HEAD + search, {"loss.name": "proxy_anchor"}) == {"loss.name": "proxy_anchor"}


@pytest.mark.parametrize("change", ["seed: 1", "train: {epochs: 7}", "model: {embedding_dim: 96}", "data: {flip: false}"])
def test_another_fixed_setting_is_another_training(change: str) -> None:
    assert fit(f"{OLD}{change}\n") is None


@pytest.mark.parametrize("change", ["train: {micro_batch: 8}", "data: {workers: 2}", "evaluate: {batch_size: 7}"])
def test_what_changes_memory_or_speed_alone_does_not_matter(change: str) -> None:
    assert fit(f"{OLD}{change}\n") == POINT


@given(st.integers(1, 64), st.sampled_from(["proxies", "all"]), st.integers(1, 60), st.integers(1, 60))
@settings(deadline=None, max_examples=25)
def test_a_point_that_fits_trains_the_same(n_aug: int, gradient: str, low: int, width: int) -> None:
    point: dict[str, Any] = {"see.n_aug": n_aug, "see.gradient": gradient}
    new = load(f"{HEAD}search: {{see.n_aug: {{int: [{low}, {low + width}]}}, see.gradient: {{choice: [all, proxies]}}}}\n")
    trial = trained(load(OLD).spec, point)
    found = fitted(trial, new.spec, new.space)
    assert (found is None) == (not low <= n_aug <= low + width)
    assert found is None or trained(new.spec, found) == trial
