"""The road from a YAML file to a champion, through the command line, on real engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

SMALL = """
study: small
dataset: {name: glyphs, classes: 40}
model: {embedding_dim: 12}
train: {epochs: 3}
search:
  see.n_aug: {int: [1, 11]}
  see.gradient: {choice: [proxies, all]}
budget: {trials: 4}
validation: {fraction: 0.4, rerank_top: 1, rerank_folds: 2}
final: {seeds: 2}
"""


def see_tune(*arguments: str, home: Path, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    """One command line in a process of its own, in an empty folder, with stdout no terminal."""
    home.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "see_tune.cli.app", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=home.parent,
        env={**os.environ, "SEE_TUNE_HOME": str(home), "COLUMNS": "80"},
    )


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One study run to its end, for all tests of this file."""
    folder = tmp_path_factory.mktemp("road")
    (folder / "small.yaml").write_text(SMALL)
    return see_tune("run", "small.yaml", "--json", home=folder / "home"), folder


@pytest.fixture(scope="module")
def summary(road: tuple[subprocess.CompletedProcess[str], Path]) -> dict[str, Any]:
    done, _ = road
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_json_is_the_only_thing_on_stdout_and_is_kept_as_the_summary(
    road: tuple[subprocess.CompletedProcess[str], Path], summary: dict[str, Any]
) -> None:
    stored = json.loads((road[1] / "home/studies/small/summary.json").read_text())
    assert summary == stored
    assert summary["status"] == "done"
    assert summary["complete"] + summary["pruned"] == summary["trials"] == 4


def test_both_arms_met_the_test_classes_once_a_seed(summary: dict[str, Any]) -> None:
    for arm in (summary["see"], summary["off"]):
        assert arm["seeds"] == [0, 1]
        assert len(arm["test"]["test/recall_at_1"]) == 2
        assert all(0.0 < value <= 1.0 for value in arm["test"]["test/recall_at_1"])
    assert summary["gain"]["low"] <= summary["gain"]["mean"] <= summary["gain"]["high"]


def test_every_measurement_on_test_classes_was_counted(summary: dict[str, Any]) -> None:
    assert summary["test_looks"].items() >= {"times": 4, "studies": 1, "by_hand": 0}.items()


def test_the_gain_over_classes_is_the_same_gain(summary: dict[str, Any]) -> None:
    over_classes = summary["gain_over_classes"]
    assert over_classes["mean"] == pytest.approx(summary["gain"]["mean"])
    assert over_classes["low"] <= over_classes["mean"] <= over_classes["high"]


def test_no_line_of_an_engine_reaches_the_terminal(road: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    lines = road[0].stderr.splitlines()
    assert lines[0].startswith("small  glyphs")
    assert all(line.startswith(("small  glyphs", "[")) for line in lines), road[0].stderr


def test_each_finished_row_gets_one_line(road: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    lines = [line for line in road[0].stderr.splitlines() if line.startswith("[")]
    assert sum("] t0" in line for line in lines) == 4
    assert sum("] final " in line for line in lines) == 4


def test_storage_holds_each_lineage_once_and_no_row_is_running(road: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    study = optuna.load_study(study_name="small", storage=f"sqlite:///{road[1]}/home/studies/small/optuna.db")
    assert sorted(trial.user_attrs["lineage"] for trial in study.trials) == ["t000", "t001", "t002", "t003"]
    assert {trial.state.name for trial in study.trials} <= {"COMPLETE", "PRUNED"}


def test_mlflow_holds_parent_and_children_one_to_one_with_the_storage(
    road: tuple[subprocess.CompletedProcess[str], Path], summary: dict[str, Any]
) -> None:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=summary["tracking"])
    experiment = client.get_experiment_by_name("see-tune/glyphs")
    runs = client.search_runs([experiment.experiment_id], max_results=100)
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run is not parent]
    lineages = sorted(run.data.tags["see_tune.lineage"] for run in children)
    assert len(lineages) == len(set(lineages)) == 4 + 1 + 4 + 4
    assert {run.info.status for run in runs} <= {"FINISHED", "KILLED"}
    assert parent.data.metrics["answer/gain"] == pytest.approx(summary["gain"]["mean"])
    best = [run for run in children if "best/val_recall_at_1" in run.data.metrics]
    assert len(best) == summary["complete"]
    epochs = client.get_metric_history(best[0].info.run_id, "val/recall_at_1")
    assert [point.step for point in epochs] == [1, 2, 3]


def test_report_lies_beside_the_summary_and_on_the_parent_run(
    road: tuple[subprocess.CompletedProcess[str], Path], summary: dict[str, Any]
) -> None:
    import mlflow

    page = (road[1] / "home/studies/small/report.html").read_text()
    assert "small" in page
    client = mlflow.MlflowClient(tracking_uri=summary["tracking"])
    experiment = client.get_experiment_by_name("see-tune/glyphs")
    (parent,) = [run for run in client.search_runs([experiment.experiment_id]) if "mlflow.parentRunId" not in run.data.tags]
    assert {"report.html", "report.md", "study.yaml", "environment.txt", "figures"} == {
        file.path for file in client.list_artifacts(parent.info.run_id)
    }
    drawn = {file.path for file in client.list_artifacts(parent.info.run_id, "figures")}
    assert {"figures/history.json", "figures/curves.json", "figures/embedding-map.json", "figures/gallery-worst.png"} <= drawn
    assert parent.data.tags["mlflow.note.content"].startswith("- What: glyphs")


def test_champion_loads_and_gives_unit_norm_embeddings(summary: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", summary["tracking"])
    model = mlflow.pyfunc.load_model("models:/see-tune.glyphs@champion")
    images = np.random.default_rng(0).integers(0, 255, (5, 32, 32, 3), dtype=np.uint8)
    embeddings = model.predict(images)
    assert embeddings.shape == (5, 12)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1.0, atol=1e-5)


def test_nothing_is_written_outside_the_home(road: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    assert sorted(path.name for path in road[1].iterdir()) == ["home", "small.yaml"]


def test_finished_study_says_so_and_starts_nothing(road: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    again = see_tune("run", "small.yaml", home=road[1] / "home", timeout_s=60)
    assert again.returncode == 0
    assert "small is finished: 4 trials. More of the same search: see-tune run FILE --trials 8" in again.stdout
    assert "validation R@1" in again.stdout


def test_changed_settings_are_refused_with_the_key_and_the_way_out(road: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    changed = see_tune("run", "small.yaml", "--set", "train.epochs=5", home=road[1] / "home", timeout_s=60)
    assert changed.returncode == 2
    assert "train.epochs: 3 -> 5" in changed.stderr
    assert "--name small-2" in changed.stderr
    assert "Traceback" not in changed.stderr


def test_ctrl_c_keeps_everything_and_the_same_command_finishes(tmp_path: Path) -> None:
    """SIGINT after the first finished row: exit 130, no row RUNNING; then the same command ends the study."""
    import signal

    import mlflow

    (tmp_path / "small.yaml").write_text(SMALL.replace("final: {seeds: 2}", "final: none"))
    home = tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-m", "see_tune.cli.app", "run", "small.yaml", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as driver:
        assert driver.stdout is not None
        next(line for line in driver.stdout if "] t0" in line)
        driver.send_signal(signal.SIGINT)
        _, errors = driver.communicate(timeout=120)
    assert driver.returncode == 130, errors
    assert "the same command continues" in errors
    storage = f"sqlite:///{home}/studies/small/optuna.db"
    assert "RUNNING" not in {trial.state.name for trial in optuna.load_study(study_name="small", storage=storage).trials}
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db")
    assert "RUNNING" not in {
        run.info.status for run in client.search_runs([client.get_experiment_by_name("see-tune/glyphs").experiment_id])
    }
    done = see_tune("run", "small.yaml", "--json", home=home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 4
