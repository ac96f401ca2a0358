"""see_tune.training.members"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

from see_tune.errors import SpecError
from see_tune.home import Home
from see_tune.results import EpochResult
from see_tune.spec.models import MemberSpec, SplitSpec, TrialSpec
from see_tune.training import check_folder, train, train_trial

SpecMaker = Callable[..., TrialSpec]
VALUE = "val/recall_at_1"
CLOCKS = ("train/images_per_s", "train/wait_share")


class StoppedError(Exception):
    """What a caller raises to stop a training."""


def with_members(spec: TrialSpec, *seeds: int) -> TrialSpec:
    splits = [SplitSpec(kind="fold", folds=2, fold=fold) for fold in range(2)]
    members = tuple(MemberSpec(split=split, seed=seed) for seed in seeds for split in splits)
    return spec.model_copy(update={"split": splits[0], "seed": seeds[0], "members": members})


def alone(spec: TrialSpec, number: int) -> TrialSpec:
    member = spec.members[number]
    return spec.model_copy(update={"members": (), "split": member.split, "seed": member.seed})


def test_trial_is_the_mean_of_what_each_member_is_alone(spec_of: SpecMaker, home: Home) -> None:
    spec = with_members(spec_of(train__epochs=2), 0)
    told: list[EpochResult] = []
    result = train_trial(spec, home=home, on_epoch=lambda epoch, _: told.append(epoch))
    curves = [[epoch.metrics[VALUE] for epoch in train(alone(spec, number), home=home).epochs] for number in range(2)]
    assert [epoch.metrics[VALUE] for epoch in result.epochs] == [fmean(values) for values in zip(*curves, strict=True)]
    assert result.best_value == max(epoch.metrics[VALUE] for epoch in result.epochs)
    assert [epoch.epoch for epoch in told] == [1, 2, 3, 4]
    assert [epoch.metrics.get(VALUE) for epoch in told] == [*curves[0], None, None]
    assert sum(epoch.duration_s for epoch in result.epochs) == pytest.approx(sum(epoch.duration_s for epoch in told))


def test_a_folder_is_that_of_its_trial_alone_also_where_a_trial_is_several_trainings(
    spec_of: SpecMaker, home: Home, tmp_path: Path
) -> None:
    one, several = spec_of(train__epochs=1), with_members(spec_of(train__epochs=2), 0)
    train_trial(one, home=home, folder=tmp_path / "one")
    train(alone(several, 1), home=home, folder=tmp_path / "cut" / several.members[1].name)
    train_trial(several, home=home, folder=tmp_path / "several")

    check_folder(tmp_path / "new", one)
    check_folder(tmp_path / "one", one)
    check_folder(tmp_path / "cut", several)
    check_folder(tmp_path / "several", several)
    longer = with_members(spec_of(train__epochs=3), 0)
    for folder, other in (("one", spec_of(train__epochs=1, see__n_aug=5)), ("cut", longer), ("several", longer)):
        with pytest.raises(SpecError, match="another spec"):
            check_folder(tmp_path / folder, other)


@pytest.mark.parametrize("cut_at", [1, 2, 3, 5])
def test_cut_trial_goes_on_inside_the_member_it_was_cut_in(
    spec_of: SpecMaker, home: Home, tmp_path: Path, cut_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = with_members(spec_of(train__epochs=2), 0, 1)

    def stop(result: EpochResult, checkpoint: Path | None) -> None:
        if result.epoch == cut_at:
            raise StoppedError

    with pytest.raises(StoppedError):
        train_trial(spec, home=home, folder=tmp_path / "t", on_epoch=stop)
    fresh: list[int] = []
    replayed: list[int] = []
    result = train_trial(
        spec,
        home=home,
        folder=tmp_path / "t",
        on_epoch=lambda epoch, checkpoint: (fresh if checkpoint else replayed).append(epoch.epoch),
    )
    whole = train_trial(spec, home=home)
    assert replayed == list(range(1, cut_at + 1))
    assert fresh == list(range(cut_at + 1, 9))
    assert [numbers(epoch) for epoch in result.epochs] == [numbers(epoch) for epoch in whole.epochs]


def numbers(epoch: EpochResult) -> dict[str, float]:
    return {name: value for name, value in epoch.metrics.items() if name not in CLOCKS}


def test_complete_member_leaves_its_result_in_place_of_its_checkpoints(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    spec = with_members(spec_of(train__epochs=1), 0)
    train_trial(spec, home=home, folder=tmp_path)
    assert sorted(file.name for file in (tmp_path / "fold1-seed0").iterdir()) == ["best.safetensors", "result.json"]


def test_failed_member_fails_the_trial_and_is_named(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    spec = with_members(spec_of(train__optimizer__lr=1e30, train__optimizer__clip_value=None), 0)
    result = train_trial(spec, home=home, folder=tmp_path)
    assert result.status == "failed"
    assert result.best_value is None
    assert result.cause is not None
    assert result.cause.startswith("in fold0-seed0: ")


def test_trial_of_one_training_is_that_training(spec_of: SpecMaker, home: Home) -> None:
    spec = spec_of(train__epochs=1)
    assert numbers(train_trial(spec, home=home).epochs[0]) == numbers(train(spec, home=home).epochs[0])
