from __future__ import annotations

import pytest

from see_tune.errors import SpecError
from see_tune.spec.load import Loaded, grace_epochs, parse_study

HEAD = "study: s\ndataset: {name: cars196}\n"
RAMP = "search: {see.pace.ramp: {float: [0.1, 1.0]}}\n"
N_AUG = "search: {see.n_aug: {int: [1, 64]}}\n"


def load(text: str) -> Loaded:
    return parse_study(HEAD + text, "f.yaml")


@pytest.mark.parametrize(
    ("text", "grace"),
    [
        (N_AUG, 51),  # cosine from 0 over 100 epochs: half at 50, which is epoch 51 counted from 1
        (N_AUG + "see: {pace: {ramp: 0.5}}\n", 26),
        (N_AUG + "see: {pace: {ramp: 0.1}}\n", 20),  # a fifth of the horizon
        (N_AUG + "see: {pace: {shape: constant}}\n", 20),
        (N_AUG + "see: {pace: {start_share: 0.3}}\n", 20),
        (N_AUG + "see: {pace: {shape: step, ramp: 0.7}}\n", 71),
        (RAMP + "see: {pace: {ramp: 0.1}}\n", 51),  # the slowest point of the space counts
        (  # so does the file's own value, where a condition leaves the ramp to it
            "search: {see.pace.ramp: {float: [0.1, 0.2], when: {see.n_aug: [4]}}, see.n_aug: {int: [1, 64]}}\n",
            51,
        ),
        (N_AUG + "train: {epochs: 8}\n", 5),
        (N_AUG + "pruner: {grace_epochs: 60}\n", 60),
        (N_AUG + "pruner: {grace_epochs: 5, force: true}\n", 5),
    ],
)
def test_nothing_is_judged_before_every_pace_is_half_way(text: str, grace: int) -> None:
    assert grace_epochs(load(text)) == grace


def test_without_see_a_fifth_of_the_horizon_is_enough() -> None:
    text = "search: {train.optimizer.lr: {float: [1e-6, 1e-4], log: true}}\nsee: {enabled: false}\n"
    assert grace_epochs(load(text)) == 20


def test_an_earlier_grace_is_fine_where_nothing_is_pruned() -> None:
    assert load(N_AUG + "pruner: {name: none, grace_epochs: 1}\n").spec.pruner.grace_epochs == 1


@pytest.mark.parametrize("sampler", ["grid", "cmaes", "gp"])
def test_samplers_without_conditions_refuse_them(sampler: str) -> None:
    text = f"search: {{see.n_aug: {{int: [1, 8]}}, see.enabled: {{choice: [true, false]}}}}\nsampler: {{name: {sampler}}}\n"
    with pytest.raises(SpecError, match=rf"f.yaml:4: sampler.name: {sampler} cannot vary .*: see.n_aug; use tpe"):
        load(text)


def test_a_grid_takes_steps_and_choices() -> None:
    text = "search: {see.lambda: {float: [0.2, 1.0], step: 0.2}, see.gradient: {choice: [all, proxies]}}\nsampler: {name: grid}\n"
    assert load(text).spec.sampler.name == "grid"


def test_a_grid_larger_than_the_budget_is_told() -> None:
    text = N_AUG + "sampler: {name: grid}\nbudget: {trials: 10}\n"
    (warning,) = load(text).warnings
    assert warning.startswith("f.yaml:4: sampler.name: the grid has 64 points and budget.trials is 10")
