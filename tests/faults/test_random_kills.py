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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import optuna
import pytest

# SEE_TUNE_TEST_KILLS=20 kills twenty times over thirty trials; unset, five times over six.
KILLS = int(os.environ.get("SEE_TUNE_TEST_KILLS", "5"))
N_AUG, LAMBDA = ((2, 8, 11), (0.2, 0.7)) if KILLS < 20 else ((1, 2, 4, 6, 8, 11), (0.1, 0.2, 0.4, 0.7, 1.0))
pytestmark = pytest.mark.timeout(300 + 60 * KILLS)
TRIALS, EPOCHS = len(N_AUG) * len(LAMBDA), 3
# A grid that is tried to its end, so that the same points are trained in whatever order.
STUDY = f"""
study: shot
dataset: {{name: glyphs, classes: 40}}
model: {{embedding_dim: 12}}
train: {{epochs: {EPOCHS}}}
search:
  see.n_aug: {{choice: {list(N_AUG)}}}
  see.lambda: {{choice: {list(LAMBDA)}}}
sampler: {{name: grid}}
budget: {{trials: {TRIALS}}}
pruner: {{name: none}}
validation: {{fraction: 0.4, rerank_top: 0}}
failure: {{retries: {min(KILLS, 10)}}}
final: none
"""


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "see_tune.cli.app", "run", "shot.yaml", "--json", "--home", str(folder / "home")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def shoot(driver: subprocess.Popen[str], aim: str, folder: Path, below: Callable[[int], list[int]], rng: random.Random) -> bool:
    """SIGKILL to the driver or to one of its workers in the middle of some epoch; False where the driver ended before."""
    before = saved_epochs(folder)
    while not (saved_epochs(folder) - before and (workers := find_workers(driver.pid, below))):
        if driver.poll() is not None:
            return False
        time.sleep(0.02)
    time.sleep(rng.uniform(0.0, 0.3))
    if driver.poll() is not None:
        return False
    with suppress(ProcessLookupError):  # Tune may have ended it by itself
        os.kill(driver.pid if aim == "driver" else rng.choice(workers), signal.SIGKILL)
        return True
    return False


def find_workers(driver: int, below: Callable[[int], list[int]]) -> list[int]:
    """Ray's processes that train, of this driver alone."""
    return [pid for pid in below(driver) if _title(pid).startswith("ray::ImplicitFunc")]


def saved_epochs(folder: Path) -> set[Path]:
    """The checkpoints that there are."""
    return set(folder.glob("home/studies/shot/trials/*/*.pt"))


def wait_for_trials(driver: subprocess.Popen[str], folder: Path, begun: int) -> None:
    """Shots are spread over the whole study."""
    while len({path.parent for path in saved_epochs(folder)}) < begun and driver.poll() is None:
        time.sleep(0.02)


def prepare(folder: Path) -> Path:
    (folder / "shot.yaml").write_text(STUDY)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, processes_below: Callable[[int], list[int]]) -> Path:
    """A study that was shot at, and finished nevertheless."""
    made, rng = prepare(tmp_path_factory.mktemp("shot")), random.Random(20)
    aims = ["driver", "worker", "worker"] * KILLS
    shots: Counter[str] = Counter()
    while True:
        with start(made) as driver:
            while (shot := shots.total()) < KILLS and driver.poll() is None:
                wait_for_trials(driver, made, 1 + shot * (TRIALS - 2) // KILLS)
                shots[aims[shot]] += shoot(driver, aims[shot], made, processes_below, rng)
            output, errors = driver.communicate(timeout=200)
        if driver.returncode != -signal.SIGKILL:
            break
    assert driver.returncode == 0, errors
    assert json.loads(output)["complete"] == TRIALS  # and no line of Ray's on the killed workers beside it
    assert shots.total() == KILLS
    assert shots["driver"] >= 2
    return made


@pytest.fixture(scope="module")
def unhurt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same study, left alone."""
    made = prepare(tmp_path_factory.mktemp("unhurt"))
    with start(made) as driver:
        _, errors = driver.communicate(timeout=200)
    assert driver.returncode == 0, errors
    return made


def values_by_point(folder: Path) -> dict[str, float | None]:
    study = optuna.load_study(study_name="shot", storage=f"sqlite:///{folder}/home/studies/shot/optuna.db")
    return {str(trial.params): trial.value for trial in study.trials if trial.state.name == "COMPLETE"}


def test_every_point_has_the_value_that_it_has_in_a_study_left_alone(folder: Path, unhurt: Path) -> None:
    assert len(values_by_point(folder)) == TRIALS
    assert values_by_point(folder) == values_by_point(unhurt)


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
        assert run.data.metrics.keys() >= {"val/recall_at_1", "train/loss"}
        for name in run.data.metrics:
            steps = [point.step for point in client.get_metric_history(run.info.run_id, name)]
            once = [0] if name.startswith("best/") else list(range(1, EPOCHS + 1))
            assert steps == once, (run.data.tags["see_tune.lineage"], name)
