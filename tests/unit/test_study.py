"""The two doors of the library that take a study or a trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from see_tune import run_study, train
from see_tune.errors import SpecError


@pytest.mark.parametrize("file", [{}, None, b"study.yaml", 3])
def test_a_study_is_the_path_of_its_yaml(file: object, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"was given a {type(file).__name__}; it takes the path of a study's YAML"):
        run_study(file, home=tmp_path)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_training_takes_a_trial_and_a_home(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="was given a dict and a PosixPath; it takes a TrialSpec"):
        train({}, home=tmp_path)  # type: ignore[arg-type]
