from __future__ import annotations

import pytest

from see_tune.errors import SpecError
from see_tune.spec import keys
from see_tune.spec.models import DatasetSpec, TrialSpec
from see_tune.spec.values import apply, read

TRIAL = TrialSpec(dataset=DatasetSpec(name="cars196"))


def test_a_key_is_read_by_its_yaml_name() -> None:
    assert read(TRIAL, "see.lambda") == 0.2
    assert read(TRIAL, "see.pace.shape") == "cosine"


@pytest.mark.parametrize("name", sorted(keys.searchable()))
def test_every_searchable_key_is_read_and_set_to_what_it_is(name: str) -> None:
    value = read(TRIAL, name)
    assert value is None or apply(TRIAL, {name: value}) == TRIAL


def test_set_values_are_read_back_and_the_trial_stays_as_it_was() -> None:
    changed = apply(TRIAL, {"see.lambda": 1, "see.n_aug": 16})
    assert (changed.see.lambda_, changed.see.n_aug, TRIAL.see.n_aug) == (1.0, 16, 8)


def test_a_value_out_of_bounds_is_refused_by_name() -> None:
    with pytest.raises(SpecError, match=r"see.pace.ramp: found the number 2; valid: a number, above 0, at most 1"):
        apply(TRIAL, {"see.pace.ramp": 2})


def test_a_combination_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SpecError, match="embedding_dim - 1 = 7"):
        apply(TRIAL, {"model.embedding_dim": 8})


@pytest.mark.parametrize("name", ["see.lambda_", "see", "budget.trials", "split.seed", "nothing"])
def test_what_is_no_value_of_a_trial_is_neither_read_nor_set(name: str) -> None:
    with pytest.raises(SpecError, match="unknown key"):
        read(TRIAL, name)
    with pytest.raises(SpecError, match="unknown key"):
        apply(TRIAL, {name: 1})
