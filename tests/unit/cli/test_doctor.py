"""A diagnosis as text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from see_tune.cli.app import main
from see_tune.cli.doctor import diagnosis_lines
from see_tune.doctor import Diagnosis, Finding


def test_last_line_says_whether_a_study_would_fail() -> None:
    warning, error = Finding("gpu1", "its clock", fatal=False), Finding("gpu2", "torch 2.13", fatal=True)

    assert diagnosis_lines(Diagnosis((), {"MLflow": "local"}, (warning,))) == [
        "MLflow   local",
        "warning  gpu1: its clock",
        "ready",
    ]
    assert diagnosis_lines(Diagnosis((), {}, (warning, error)))[1:] == ["ERROR  gpu2: torch 2.13", "a study would fail here"]


def test_machine_is_diagnosed_and_a_fault_is_in_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEE_TUNE_DATA", str(tmp_path / "absent"))

    code = main(["doctor", "--home", str(tmp_path / "home"), "--json"])

    diagnosis = json.loads(capsys.readouterr().out)
    assert code == 1
    assert "absent: No such file or directory" in diagnosis["findings"][0]["text"]
