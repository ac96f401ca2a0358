"""SIGKILL at random moments, of the driver and of Ray's workers: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

TRIALS, EPOCHS = 6, 3
SHOTS = (("worker", "driver"), ("driver",), ("worker", "worker"))  # session by session; the last one runs to the end
STUDY = f"""
study: shot
dataset: {{name: glyphs, classes: 40}}
model: {{embedding_dim: 12}}
train: {{epochs: {EPOCHS}}}
search:
  see.n_aug: {{int: [1, 11]}}
  see.lambda: {{float: [0.0, 1.0]}}
budget: {{trials: {TRIALS}}}
pruner: {{name: none}}
validation: {{fraction: 0.4, rerank_top: 0}}
failure: {{retries: {len(SHOTS[-1])}}}
final: none
"""


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "see_tune.cli.app", "run", "shot.yaml", "--json", "--home", str(folder / "home")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


def descendants(pid: int) -> Iterator[int]:
    """Every process below `pid`, by the parent that the kernel names."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it ended meanwhile
            continue
    below = [pid]
    while below:
        children = [child for child, parent in parents.items() if parent == below[-1]]
        below.pop()
        below += children
        yield from children


def workers(driver: int) -> list[int]:
    """Ray's processes that train, of this driver alone."""
    return [pid for pid in descendants(driver) if _title(pid).startswith("ray::ImplicitFunc")]


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def shoot(driver: subprocess.Popen[str], aim: str, folder: Path, rng: random.Random) -> bool:
    """SIGKILL to the driver or to one of its workers in the middle of some epoch; False where the driver ended before."""
    before = saved_epochs(folder)
    while not (saved_epochs(folder) - before and (targets := workers(driver.pid))):
        if driver.poll() is not None:
            return False
        time.sleep(0.02)
    time.sleep(rng.uniform(0.0, 0.5))
    if driver.poll() is not None:
        return False
    os.kill(driver.pid if aim == "driver" else rng.choice(targets), signal.SIGKILL)
    return True


def saved_epochs(folder: Path) -> set[Path]:
    """The checkpoints that there are."""
    return set(folder.glob("home/studies/shot/trials/*/*.pt"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was shot at, and finished nevertheless."""
    made, rng = tmp_path_factory.mktemp("shot"), random.Random(20)
    (made / "shot.yaml").write_text(STUDY)
    shots: Counter[str] = Counter()
    for aims in SHOTS:
        with start(made) as driver:
            for aim in aims:
                shots[aim] += shoot(driver, aim, made, rng)
            output, errors = driver.communicate(timeout=200)
    assert driver.returncode == 0, errors
    assert json.loads(output)["complete"] == TRIALS  # and no line of Ray's on the killed workers beside it
    assert shots["driver"] >= 2
    assert shots["worker"] >= 2
    return made


def test_each_lineage_is_finished_once_and_no_row_is_running(folder: Path) -> None:
    storage = f"sqlite:///{folder}/home/studies/shot/optuna.db"
    for name, lineages in (("shot", [f"t{number:03d}" for number in range(TRIALS)]), ("shot/final", ["baseline"])):
        trials = optuna.load_study(study_name=name, storage=storage).trials
        living = [trial for trial in trials if "superseded" not in trial.user_attrs]
        assert sorted(trial.user_attrs["lineage"] for trial in living) == lineages
        assert {trial.state.name for trial in living} == {"COMPLETE"}
        assert {trial.state.name for trial in trials} <= {"COMPLETE", "FAIL"}
        assert all(sorted(trial.intermediate_values) == list(range(1, EPOCHS + 1)) for trial in living)


def test_mlflow_has_one_run_a_lineage_and_each_epoch_once(folder: Path) -> None:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/home/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("see-tune/glyphs").experiment_id], max_results=100)
    assert {run.info.status for run in runs} == {"FINISHED"}
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert len(children) == len(runs) - 1
    lineages = Counter(run.data.tags["see_tune.lineage"] for run in children)
    assert lineages == Counter(["baseline", *(f"t{number:03d}" for number in range(TRIALS))])
    for run in children:
        steps = [point.step for point in client.get_metric_history(run.info.run_id, "val/recall_at_1")]
        assert steps == list(range(1, EPOCHS + 1)), run.data.tags["see_tune.lineage"]
