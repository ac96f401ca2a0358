"""kill -9 of the driver in the middle of the search: the same command finishes the study, and nothing finished runs again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import optuna

STUDY = """
study: killed
dataset: {name: glyphs, classes: 40}
model: {embedding_dim: 12}
train: {epochs: 2}
search:
  see.n_aug: {int: [1, 11]}
  see.lambda: {float: [0.0, 1.0]}
budget: {trials: 5}
pruner: {name: none}
validation: {folds: 2}
final: {seeds: 1}
"""


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "see_tune.cli.app", "run", "killed.yaml", "--home", str(folder / "home"), *more]
    # A session of its own, so that the whole tree can be swept up afterwards, Ray's orphans included.
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True
    )


def finished_values(folder: Path) -> dict[str, float | None]:
    study = optuna.load_study(study_name="killed", storage=f"sqlite:///{folder}/home/studies/killed/optuna.db")
    return {t.user_attrs["lineage"]: t.value for t in study.trials if t.state.name == "COMPLETE"}


def test_killed_study_finishes_and_no_finished_trial_runs_again(tmp_path: Path) -> None:
    (tmp_path / "killed.yaml").write_text(STUDY)
    with start(tmp_path) as driver:
        assert driver.stdout is not None
        trials_seen = 0
        while trials_seen < 2:
            trials_seen += "] t0" in driver.stdout.readline()
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait(timeout=30)
    before = finished_values(tmp_path)
    assert len(before) >= 2

    with start(tmp_path, "--json") as resumed:
        output, errors = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, errors
    assert json.loads(output)["complete"] == 5
    rerun = [line for line in errors.splitlines() if "] t0" in line]
    assert len(rerun) == 5 - len(before)

    after = finished_values(tmp_path)
    assert {lineage: after[lineage] for lineage in before} == before
    study = optuna.load_study(study_name="killed", storage=f"sqlite:///{tmp_path}/home/studies/killed/optuna.db")
    living = [t for t in study.trials if "superseded" not in t.user_attrs]
    assert Counter(t.user_attrs["lineage"] for t in living) == Counter(f"t{number:03d}" for number in range(5))
    assert all(t.state.name == "COMPLETE" for t in living)
    assert_each_lineage_has_one_run(tmp_path)


def assert_each_lineage_has_one_run(folder: Path) -> None:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/home/mlflow.db")
    experiment = client.get_experiment_by_name("see-tune/glyphs")
    runs = client.search_runs([experiment.experiment_id], max_results=100)
    lineages = Counter(run.data.tags["see_tune.lineage"] for run in runs if "mlflow.parentRunId" in run.data.tags)
    assert set(lineages.values()) == {1}
    assert {run.info.status for run in runs} == {"FINISHED"}
    searched = [run for run in runs if run.data.tags.get("see_tune.phase") == "search"]
    assert len(searched) == 5
    for run in searched:  # each is the mean of two folds
        curve = client.get_metric_history(run.info.run_id, "mean/val/recall_at_1")
        assert [point.step for point in curve] == [1, 2]
        assert run.data.metrics["best/val_recall_at_1"] == max(point.value for point in curve)
        assert [point.step for point in client.get_metric_history(run.info.run_id, "val/recall_at_1")] == [1, 2]
