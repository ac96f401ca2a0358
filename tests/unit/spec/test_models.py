from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from see_tune.data import DATASETS, TITLE
from see_tune.losses import LOSSES
from see_tune.spec.models import DatasetSpec, LossSpec, OptimizerSpec, PaceSpec, ResourcesSpec, SEESpec, TrialSpec


def test_a_spec_is_frozen() -> None:
    with pytest.raises(ValidationError):
        SEESpec().n_aug = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_chosen_loss_has_the_parameters_of_its_entry(name: str) -> None:
    assert LossSpec(name=name).parameters == dict(LOSSES[name].defaults)


def test_the_k_of_recall_are_sorted_and_hold_1() -> None:
    trial = TrialSpec.model_validate({"dataset": {"name": "sop"}, "evaluate": {"ks": [100, 10]}})
    assert trial.ks == (1, 10, 100)


def test_the_dataset_brings_its_own_k() -> None:
    assert TrialSpec(dataset=DatasetSpec(name="inshop")).ks == (1, 10, 20, 30)


def test_pictures_of_ones_own_are_called_by_their_title_and_by_their_reader_without_one() -> None:
    assert DatasetSpec(name="manifest", title="birds").called == "birds"
    assert DatasetSpec(name="manifest").called == "manifest"
    assert DatasetSpec(name="cub200").called == "cub200"


@pytest.mark.parametrize("name", [name for name, entry in DATASETS.items() if not entry.own])
def test_a_named_dataset_takes_no_title(name: str) -> None:
    with pytest.raises(ValidationError, match="a title is for folder and manifest"):
        DatasetSpec(name=name, title="birds")


@pytest.mark.parametrize("title", sorted(DATASETS))
def test_a_title_is_no_datasets_own_name(title: str) -> None:
    with pytest.raises(ValidationError, match="another dataset's name"):
        DatasetSpec(name="folder", title=title)


@pytest.mark.parametrize("title", ["a b", "a/b", "a:b", "a@b", "../x", ".x", "-x", "", "é", "x" * 65, "a\n"])
def test_a_title_is_a_name_that_a_registry_takes(title: str) -> None:
    with pytest.raises(ValidationError):
        DatasetSpec(name="folder", title=title)
    assert not re.fullmatch(TITLE, title)


@pytest.mark.parametrize("title", ["birds", "Birds_2024-v1.0", "7", "x" * 64])
def test_a_title_has_letters_digits_dots_dashes_and_underscores(title: str) -> None:
    assert DatasetSpec(name="folder", title=title).called == title


def test_the_last_epoch_is_the_horizon_unless_the_trial_stops_before() -> None:
    trial = TrialSpec(dataset=DatasetSpec(name="sop"))
    assert trial.last_epoch == trial.train.epochs
    assert trial.model_copy(update={"stop_epoch": 7}).last_epoch == 7


@pytest.mark.parametrize("gpus", [0, 1, 0.5, 0.25, 0.33, 0.333333, "auto"])
def test_a_trial_takes_one_gpu_or_an_nth(gpus: float | str) -> None:
    assert ResourcesSpec.model_validate({"gpus": gpus}).gpus == gpus


@pytest.mark.parametrize("gpus", [2, 1.5, 0.4, 0.7, -1, True])
def test_a_trial_takes_no_other_part_of_a_gpu(gpus: float) -> None:
    with pytest.raises(ValidationError):
        ResourcesSpec.model_validate({"gpus": gpus})


@pytest.mark.parametrize(
    ("see", "first"),
    [
        (SEESpec(), 7),
        (SEESpec(pace=PaceSpec(shape="constant")), 1),
        (SEESpec(pace=PaceSpec(end_share=0.0)), None),
        (SEESpec(lambda_=0.0), None),
        (SEESpec(enabled=False), None),
    ],
)
def test_see_expands_from_the_first_epoch_whose_share_is_a_sample(see: SEESpec, first: int | None) -> None:
    """By default 0.44 samples in the sixth epoch, which round to none, and 0.64 in the seventh."""
    trial = TrialSpec(dataset=DatasetSpec(name="cars196"), see=see)
    assert next((epoch for epoch in range(1, 101) if trial.expands_by(epoch)), None) == first


def test_a_gradient_is_clipped_one_way() -> None:
    with pytest.raises(ValidationError, match="exclude each other"):
        OptimizerSpec(clip_norm=1.0)
    assert OptimizerSpec(clip_norm=1.0, clip_value=None).clip_norm == 1.0


def test_see_is_refused_with_a_loss_without_proxies_and_off_it_is_fine() -> None:
    without = next(name for name, loss in LOSSES.items() if not loss.has_proxies)
    values = {"dataset": {"name": "sop"}, "loss": {"name": without}}
    with pytest.raises(ValidationError, match="SEE expands around proxies"):
        TrialSpec.model_validate(values)
    assert TrialSpec.model_validate(values | {"see": {"enabled": False}}).loss.name == without
