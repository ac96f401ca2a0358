"""One study through all that may happen to it between its first trial and its answer, by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest

from see_tune.wording import counted

STUDY = """
study: small
dataset: {name: glyphs, classes: 40}
model: {embedding_dim: 12}
train: {epochs: 20}  # long enough to be looked at and stopped in the middle
search:
  see.n_aug: {int: [1, 11]}
  see.lambda: {float: [0.0, 1.0]}
budget: {trials: 4}
pruner: {name: none}
validation: {fraction: 0.4, rerank_top: 0}
final: {seeds: 1}
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "see_tune.cli.app", *arguments]


def see_tune(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One command line in a process of its own."""
    environment = {**os.environ, "SEE_TUNE_HOME": str(folder / "home")}
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=240, check=False, cwd=folder, env=environment
    )


def status(folder: Path) -> dict[str, Any]:
    done = see_tune(folder, "status", "small", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("resume")
    (made / "small.yaml").write_text(STUDY)
    (made / "wider.yaml").write_text(STUDY.replace("[0.0, 1.0]", "[0.0, 1.5]"))
    return made


def test_running_study_is_looked_at_and_stopped_from_another_terminal(folder: Path) -> None:
    first = command("run", "small.yaml", "--until", "search", "--home", str(folder / "home"))
    with subprocess.Popen(first, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as driver:
        assert driver.stdout is not None
        next(line for line in driver.stdout if "] t0" in line)

        now = status(folder)
        assert (now["state"], now["holder"]["pid"], now["trials"]) == ("running", driver.pid, 4)
        assert now["finished"] >= 1
        assert now["checkpoint_bytes"] > 0

        second = see_tune(folder, "run", "small.yaml")
        assert second.returncode == 2
        assert f"running already (pid {driver.pid} on" in second.stderr

        stopped = see_tune(folder, "stop", "small")
        assert stopped.returncode == 0, stopped.stderr
        driver.communicate(timeout=120)
    assert driver.returncode == 130
    assert status(folder)["state"] == "interrupted"
    assert see_tune(folder, "stop", "small").returncode == 2


def test_changed_space_goes_on_as_a_new_generation(folder: Path) -> None:
    before = status(folder)["finished"]
    done = see_tune(folder, "run", "wider.yaml", "--until", "search")
    assert done.returncode == 0, done.stderr
    kept = counted(before, "finished trial fits and is", "finished trials fit and are")
    assert f"the search space has changed: {kept} kept, 0 do not" in done.stdout
    assert "search.see.lambda: {float: [0.0, 1.0]} -> {float: [0.0, 1.5]}" in done.stdout
    assert sum("] t0" in line for line in done.stdout.splitlines()) == 4 - before
    study = optuna.load_study(study_name="small/g2", storage=f"sqlite:///{folder}/home/studies/small/optuna.db")
    living = [trial for trial in study.trials if "superseded" not in trial.user_attrs]
    assert sorted(trial.user_attrs["lineage"] for trial in living) == ["t000", "t001", "t002", "t003"]
    assert {trial.state.name for trial in living} == {"COMPLETE"}


def test_final_phase_of_a_searched_study_runs_by_its_name(folder: Path) -> None:
    done = see_tune(folder, "final", "small", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["trials"], answer["see"]["seeds"], answer["off"]["seeds"]) == ("done", 4, [0], [0])
    again = see_tune(folder, "final", "small")
    assert again.returncode == 0
    assert "small is finished" in again.stdout


def test_each_lineage_has_one_run_and_none_is_running(folder: Path) -> None:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/home/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("see-tune/glyphs").experiment_id], max_results=100)
    lineages = [run.data.tags["see_tune.lineage"] for run in runs]
    assert len(lineages) == len(set(lineages)) == 1 + 4 + 1 + 2
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_studies_are_listed_with_their_best_beside_see_off(folder: Path) -> None:
    (line,) = see_tune(folder, "list").stdout.splitlines()
    assert line.startswith("small  glyphs   done             4/4   t00")
    assert "SEE off" in line


def test_fresh_sets_the_old_study_aside_and_begins_anew(folder: Path) -> None:
    again = ("--fresh", "--set", "train.epochs=1", "--set", "final=none", "--trials", "1", "--json")
    done = see_tune(folder, "run", "small.yaml", *again)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 1
    assert "set aside: " in done.stderr
    (aside,) = (path for path in (folder / "home/studies").iterdir() if path.name != "small")
    assert json.loads((aside / "summary.json").read_text())["trials"] == 4
