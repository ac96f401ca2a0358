from __future__ import annotations

import pytest

from see_tune.errors import SpecError
from see_tune.spec import keys
from see_tune.spec.load import dump_study, parse_study
from see_tune.spec.models import DatasetSpec, StudySpec, TrialSpec
from see_tune.spec.values import apply, read, trial_values

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


def studied(text: str) -> StudySpec:
    return parse_study(f"study: s\nseed: 7\ndataset: {{name: cars196}}\nsearch: {{see.n_aug: {{int: [1, 9]}}}}\n{text}", "f").spec


def test_trial_of_folds_and_repeats_is_the_mean_of_their_product_and_begins_with_the_studys_own_seed() -> None:
    trial = trial_values(studied("validation: {folds: 3}\nrepeat: 2\n"))
    assert [member.name for member in trial.members] == [f"fold{fold}-seed{seed}" for seed in (7, 8) for fold in range(3)]
    assert {member.split.seed for member in trial.members} == {7}
    assert (trial.split, trial.seed) == (trial.members[0].split, trial.members[0].seed)
    assert trial.epochs_in_all == 6 * trial.train.epochs


def test_trial_of_one_split_and_seed_has_no_members() -> None:
    trial = trial_values(studied(""))
    assert (trial.members, trial.epochs_in_all) == ((), trial.train.epochs)


@pytest.mark.parametrize(
    ("text", "reranked"), [("", 5), ("validation: {folds: 4}\n", 0), ("validation: {folds: 4, rerank_top: 2}\n", 2)]
)
def test_folds_take_the_place_of_the_re_ranking_unless_it_is_asked_for(text: str, reranked: int) -> None:
    assert studied(text).validation.reranked == reranked


def test_folds_survive_the_frozen_file() -> None:
    spec = studied("validation: {folds: 4}\nrepeat: 3\n")
    assert parse_study(dump_study(spec), "frozen").spec == spec
