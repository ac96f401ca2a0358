"""Every path of a study is under its home."""

from __future__ import annotations

from pathlib import Path

import pytest

from see_tune.errors import SpecError
from see_tune.home import Home, dataset_places, find_home


def test_flag_goes_before_environment_and_environment_before_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEE_TUNE_HOME", raising=False)
    assert find_home().root == tmp_path / "runs"
    monkeypatch.setenv("SEE_TUNE_HOME", str(tmp_path / "env"))
    assert find_home().root == tmp_path / "env"
    assert find_home(Path("flag")).root == tmp_path / "flag"


def test_every_path_of_a_study_lies_in_its_folder(tmp_path: Path) -> None:
    study = Home(tmp_path).study("cars")
    paths = [study.spec_file, study.optuna_db, study.spool_db, study.summary_file, study.report_file, study.trial("t001")]
    assert all(path.is_relative_to(tmp_path / "studies" / "cars") for path in paths)


def test_a_study_folder_knows_its_home(tmp_path: Path) -> None:
    assert Home(tmp_path).study("cars").home == Home(tmp_path)


def test_given_root_is_the_only_place_looked_in(tmp_path: Path) -> None:
    assert dataset_places("cub200", tmp_path) == (tmp_path,)


def test_shared_data_folder_is_looked_in_before_the_local_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEE_TUNE_DATA", str(tmp_path / "shared"))
    assert dataset_places("cub200") == (tmp_path / "shared/cub200", tmp_path / "data/cub200")


@pytest.mark.parametrize("character", ["?", "#", "%"])
def test_home_that_cannot_stand_in_a_databases_address_is_refused(character: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="--home"):
        find_home(tmp_path / f"a{character}b")
