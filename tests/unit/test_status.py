"""How a study stands: read from what is stored, whoever runs it, and as text."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from see_tune.cli.app import main
from see_tune.cli.studies import status_lines
from see_tune.holding import held
from see_tune.home import Home
from see_tune.results import EpochResult, StudyResult, TrialResult
from see_tune.search.generations import Ledgers, open_ledgers
from see_tune.spec.load import parse_study
from see_tune.status import read_status

STUDY = """
study: small
dataset: {name: glyphs}
train: {epochs: 4}
search: {see.n_aug: {int: [1, 15]}, see.lambda: {float: [0.0, 2.0]}}
budget: {trials: 6}
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def ledgers(home: Home) -> Ledgers:
    """t000 complete, t001 failed, SEE off measured, and t002 out after two epochs."""
    folder = home.study("small").make()
    folder.spec_file.write_text(STUDY)
    opened = open_ledgers(parse_study(STUDY, "small.yaml"), home)
    opened.final.plan("baseline", {"phase": "baseline", "side": "off", "values": {}})
    opened.final.tell(opened.final.ask().lineage, complete(0.6))
    opened.search.tell(opened.search.ask().lineage, complete(0.7))
    opened.search.tell(opened.search.ask().lineage, TrialResult("failed", cause="loss is nan"))
    out = opened.search.ask().lineage
    for epoch in (1, 2):
        opened.search.report(out, epoch, 0.5 + 0.1 * epoch)
    folder.trial(out).mkdir(parents=True)
    (folder.trial(out) / "0002-a.pt").write_bytes(bytes(5000))
    return opened


def complete(value: float) -> TrialResult:
    return TrialResult("complete", (EpochResult(4, {"val/recall_at_1": value}, time.time(), 1.0),), 4, value)


def test_counts_best_beside_see_off_and_what_is_out(home: Home, ledgers: Ledgers) -> None:
    with held(home.study("small")):
        now = read_status(home, "small")
    assert (now.state, now.trials, now.finished, now.complete, now.failed, now.planned) == ("running", 6, 2, 1, 1, 1)
    assert (now.best.lineage, now.best.value, now.off.value) == ("t000", 0.7, 0.6)
    assert [(trial.lineage, trial.epoch, trial.value) for trial in now.running] == [("t002", 2, 0.7)]
    assert (now.waiting, now.checkpoint_bytes) == (0, 5000)
    assert now.disk_bytes > 5000


def test_what_a_dead_driver_left_is_cut_and_not_running(home: Home, ledgers: Ledgers) -> None:
    now = read_status(home, "small")
    assert (now.state, now.running, now.waiting) == ("interrupted", (), 1)


def test_looking_changes_no_file(home: Home, ledgers: Ledgers) -> None:
    def contents() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in home.root.rglob("*") if file.is_file()}

    before = contents()
    read_status(home, "small")
    assert contents() == before


def test_study_without_a_trial_has_a_status(home: Home) -> None:
    home.study("small").make().spec_file.write_text(STUDY)
    now = read_status(home, "small")
    assert (now.state, now.finished, now.best, now.off) == ("interrupted", 0, None, None)


def test_study_that_ended_before_its_last_trial_says_why(home: Home, ledgers: Ledgers) -> None:
    counts = {"trials": 2, "complete": 1, "pruned": 0, "failed": 1, "failures": {}, "wall_s": 9.0, "device_hours": 0.1}
    names = {"study": "small", "dataset": "glyphs", "protocol": "honest", "status": "done", "folder": "", "tracking": ""}
    rest = {"see": None, "off": None, "gain": None, "champion": None, "champion_note": "", "undelivered": 0}
    stored = StudyResult(**counts, **names, **rest, tracking_problems=(), commands={}, search_ended="device_hours")
    home.study("small").summary_file.write_text(stored.to_json())
    now = read_status(home, "small")
    assert (now.state, now.search_ended) == ("done", "device_hours")
    assert status_lines(now, 0.0)[2] == "         ended by budget.device_hours"
    with held(home.study("small")):  # extended, it goes on
        assert read_status(home, "small").search_ended == ""


def test_text_fits_into_80_columns(home: Home, ledgers: Ledgers) -> None:
    with held(home.study("small")):
        now = read_status(home, "small")
    lines = status_lines(now, now.holder.started_at + 190)
    assert lines[0].startswith(f"small  glyphs  honest  running for 3m10 (pid {now.holder.pid} on ")
    assert "search   2/6  complete 1  pruned 0  failed 1" in lines
    assert "best     t000 70.0   SEE off 60.0   n8 l.2" in lines
    assert "running  t002 epoch 2/4  70.0" in lines
    assert all(len(line) <= 80 for line in lines[1:-1])


def test_list_and_status_are_commands(home: Home, ledgers: Ledgers, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--home", str(home.root)]) == 0
    assert capsys.readouterr().out.startswith("small  glyphs   interrupted      2/6   t000 70.0   SEE off 60.0")
    assert main(["status", "small", "--json", "--home", str(home.root)]) == 0
    assert json.loads(capsys.readouterr().out)["best"]["lineage"] == "t000"


def test_one_study_that_cannot_be_read_hides_no_other(home: Home, ledgers: Ledgers, capsys: pytest.CaptureFixture[str]) -> None:
    home.study("broken").make().spec_file.write_text("study: broken\nsee: {n_agu: 3}\n")
    assert main(["list", "--home", str(home.root)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("small ")
    assert "broken cannot be read" in said.err


@pytest.mark.parametrize("command", ["status", "stop", "final"])
def test_name_of_no_study_is_refused(command: str, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "absent", "--home", str(home.root)]) == 2
    assert "there is no study 'absent'" in capsys.readouterr().err


def test_empty_home_says_how_to_begin(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--home", str(home.root)]) == 0
    assert "see-tune run search_spaces/glyphs.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["status", "small"], ["list"]])
def test_whoever_asks_how_a_study_stands_waits_for_no_engine(command: list[str], home: Home, ledgers: Ledgers) -> None:
    code = (
        "import sys; from see_tune.cli.app import main; main(sys.argv[1:]); "
        "print('engines:', {'torch', 'timm', 'ray', 'mlflow'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, *command, "--home", str(home.root)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.endswith("\nengines: set()\n")
