import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from see_tune.errors import TrackingError
from see_tune.home import Home
from see_tune.results import EpochResult
from see_tune.tracking.mlflow_tracker import Tracker

NOW = 1_700_000_000.25


def epoch(number: int, recall: float = 0.5) -> EpochResult:
    return EpochResult(number, {"train/loss": 2.0, "val/recall_at_1": recall}, NOW + number, 1.5)


@pytest.fixture
def track(home: Home, request: pytest.FixtureRequest) -> Iterator[Callable[[], Tracker]]:
    """Opens a tracker of this test's own study; opening it again is what a restarted driver does."""
    opened: list[Tracker] = []

    def open_one() -> Tracker:
        opened.append(Tracker(home, study=study_of(request), dataset="glyphs", uri="local"))
        return opened[-1]

    yield open_one
    for tracker in opened:
        tracker.close()


def study_of(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("[", "-").replace("]", "")


@pytest.fixture
def runs(client: MlflowClient, request: pytest.FixtureRequest) -> Callable[[], dict[str, Run]]:
    """The runs of this test's study as MLflow has them, by name; more than one of a name is an error."""

    def read() -> dict[str, Run]:
        experiment = client.get_experiment_by_name("see-tune/glyphs")
        found = client.search_runs([experiment.experiment_id], f"tags.`see_tune.study` = '{study_of(request)}'")
        assert len({run.info.run_name for run in found}) == len(found)
        return {run.info.run_name: run for run in found}

    return read


def begin(tracker: Tracker, *lineages: str) -> None:
    measured_on = {"dataset": "glyphs", "fingerprint": "f1"}
    tracker.start_study(params={"train.epochs": 3}, tags={"protocol": "honest", **measured_on}, started_at=NOW)
    for lineage in lineages:
        tags = {"phase": "search", **measured_on}
        tracker.start_run(lineage, name=f"t-{lineage}", params={"see.n_aug": 8}, tags=tags, started_at=NOW)


def deliver(tracker: Tracker) -> None:
    assert tracker.drain(60) == 0
    assert tracker.refused() == ()


def test_a_study_is_a_parent_run_and_its_trials_are_its_children(track, runs, request) -> None:
    tracker = track()
    begin(tracker, "a", "b")
    deliver(tracker)
    found = runs()
    parent = found[study_of(request)]
    assert found.keys() == {study_of(request), "t-a", "t-b"}
    assert {found[name].data.tags["mlflow.parentRunId"] for name in ("t-a", "t-b")} == {parent.info.run_id}
    assert "mlflow.parentRunId" not in parent.data.tags
    assert parent.data.params == {"train.epochs": "3"}
    assert found["t-a"].data.params == {"see.n_aug": "8"}
    assert found["t-a"].data.tags.items() >= {"see_tune.phase": "search", "see_tune.lineage": "a"}.items()
    assert found["t-a"].info.start_time == 1_700_000_000_250


def test_a_run_shows_its_dataset_once_with_the_fingerprint(track, runs) -> None:
    for _ in range(2):  # a resumed study tells it again
        tracker = track()
        begin(tracker, "a")
        deliver(tracker)
        tracker.close()
    for run in runs().values():
        (shown,) = run.inputs.dataset_inputs
        assert (shown.dataset.name, shown.dataset.digest) == ("glyphs", "f1")


def test_an_epoch_is_the_step_of_its_metrics_and_brings_its_own_time(track, runs, client) -> None:
    tracker = track()
    begin(tracker, "a")
    tracker.log_epoch("a", epoch(1, 0.25))
    tracker.log_epoch("a", epoch(2, 0.75))
    deliver(tracker)
    history = client.get_metric_history(runs()["t-a"].info.run_id, "val/recall_at_1")
    assert [(row.step, row.value, row.timestamp) for row in history] == [
        (1, 0.25, 1_700_000_001_250),
        (2, 0.75, 1_700_000_002_250),
    ]


@pytest.mark.parametrize(
    ("state", "status"), [("complete", "FINISHED"), ("pruned", "KILLED"), ("failed", "FAILED"), ("interrupted", "KILLED")]
)
def test_a_run_ends_with_the_status_of_its_trial(track, runs, state, status) -> None:
    tracker = track()
    begin(tracker, "a")
    tracker.end_run("a", status=state, tags={"cause": "because"}, ended_at=NOW + 9)
    deliver(tracker)
    run = runs()["t-a"]
    assert run.info.status == status
    assert run.info.end_time == 1_700_000_009_250
    assert run.data.tags.items() >= {"see_tune.state": state, "see_tune.cause": "because"}.items()


def test_best_metrics_are_on_the_runs_they_were_given_for_alone(track, runs) -> None:
    tracker = track()
    begin(tracker, "a", "b")
    tracker.end_run("a", status="complete", metrics={"best/val_recall_at_1": 0.7, "best/epoch": 2}, ended_at=NOW)
    tracker.end_run("b", status="pruned", ended_at=NOW)
    deliver(tracker)
    assert runs()["t-a"].data.metrics == {"best/val_recall_at_1": 0.7, "best/epoch": 2.0}
    assert runs()["t-b"].data.metrics == {}


def test_the_answer_the_description_and_the_artifacts_are_on_the_parent(track, runs, client, request, tmp_path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "one.svg").write_text("<svg/>")
    (tmp_path / "study.yaml").write_text("study: a")
    tracker = track()
    begin(tracker)
    tracker.log_study_metrics({"answer/gain": 0.4})
    tracker.set_description("SEE gains 0.4 points.")
    tracker.log_artifact(tmp_path / "study.yaml")
    tracker.log_artifact(tmp_path / "figures", "figures")
    tracker.end_study(status="complete", ended_at=NOW)
    deliver(tracker)
    parent = runs()[study_of(request)]
    assert parent.data.metrics == {"answer/gain": 0.4}
    assert parent.data.tags["mlflow.note.content"] == "SEE gains 0.4 points."
    assert [file.path for file in client.list_artifacts(parent.info.run_id, "figures")] == ["figures/one.svg"]
    assert "study.yaml" in [file.path for file in client.list_artifacts(parent.info.run_id)]
    assert parent.info.status == "FINISHED"


def test_a_resumed_study_tells_all_again_and_nothing_is_there_twice(track, runs, client, request) -> None:
    for _ in range(2):
        tracker = track()
        begin(tracker, "a")
        tracker.log_epoch("a", epoch(1))
        tracker.log_epoch("a", epoch(2))
        tracker.end_run("a", status="complete", metrics={"best/epoch": 2}, ended_at=NOW + 5)
        tracker.end_study(status="complete", ended_at=NOW + 6)
        deliver(tracker)
        tracker.close()
    found = runs()
    assert found.keys() == {study_of(request), "t-a"}
    for metric, rows in {"train/loss": 2, "best/epoch": 1}.items():
        assert len(client.get_metric_history(found["t-a"].info.run_id, metric)) == rows
    assert {run.info.status for run in found.values()} == {"FINISHED"}


def test_a_resumed_run_is_running_again(track, runs) -> None:
    tracker = track()
    begin(tracker, "a")
    tracker.end_run("a", status="interrupted", ended_at=NOW)
    begin(tracker, "a")
    deliver(tracker)
    assert runs()["t-a"].info.status == "RUNNING"
    assert runs()["t-a"].data.tags["see_tune.state"] == "running"


def test_params_are_logged_once_whatever_a_resumed_study_says_later(track, runs, request) -> None:
    many = {f"key{n}": n for n in range(130)}  # more than MLflow takes in one call
    tracker = track()
    tracker.start_study(params=many, tags={}, started_at=NOW)
    tracker.start_study(params={**many, "key0": "changed", "new": "one"}, tags={}, started_at=NOW)
    deliver(tracker)
    assert runs()[study_of(request)].data.params == {**{key: str(value) for key, value in many.items()}, "new": "one"}


def test_a_study_begun_anew_under_its_old_name_is_another_run(track, home, client, request) -> None:
    for _ in range(2):
        tracker = track()
        begin(tracker)
        deliver(tracker)
        tracker.close()
        shutil.rmtree(home.study(study_of(request)).root)
    experiment = client.get_experiment_by_name("see-tune/glyphs")
    assert len(client.search_runs([experiment.experiment_id], f"tags.`see_tune.study` = '{study_of(request)}'")) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_refused_before_the_spool(track, value) -> None:
    tracker = track()
    with pytest.raises(TrackingError, match="val/recall_at_1 of a is"):
        tracker.log_epoch("a", epoch(1, value))
    assert tracker.undelivered() == 0


def test_what_mlflow_refuses_is_said_and_the_rest_arrives(track, runs, tmp_path) -> None:
    tracker = track()
    begin(tracker, "a")
    tracker.log_artifact(tmp_path / "deleted.html")
    tracker.log_epoch("a", EpochResult(1, {"recall@1": 0.5}, NOW, 1.0))  # MLflow knows no @ in a metric's name
    tracker.log_epoch("a", epoch(2, 0.6))
    assert tracker.drain(60) == 0
    assert [refusal.kind for refusal in tracker.refused()] == ["artifact", "metrics"]
    assert "recall@1" in tracker.refused()[1].error
    assert runs()["t-a"].data.metrics["val/recall_at_1"] == 0.6


def test_the_queued_epochs_of_a_run_are_one_call(track, runs, monkeypatch) -> None:
    tracker = track()
    begin(tracker, "a", "b")
    deliver(tracker)
    calls: list[int] = []
    log_batch = MlflowClient.log_batch

    def count(self, run_id, metrics=(), params=(), tags=()):
        calls.append(len(metrics))
        log_batch(self, run_id, metrics, params, tags)

    monkeypatch.setattr(MlflowClient, "log_batch", count)
    tracker.close()
    tracker = track()
    with tracker._spool._changed:  # hold delivery back until all is queued
        for number in range(1, 31):
            for lineage in ("a", "b"):
                tracker.log_epoch(lineage, epoch(number))
    deliver(tracker)
    assert sum(calls) == 2 * 30 * 3
    assert len(calls) == 2


def test_a_deleted_experiment_is_restored(home, client) -> None:
    for study in ("one", "two"):
        tracker = Tracker(home, study=study, dataset="restored", uri="local")
        begin(tracker)
        deliver(tracker)
        tracker.close()
        found = client.get_experiment_by_name("see-tune/restored")
        assert found.lifecycle_stage == "active"
        client.delete_experiment(found.experiment_id)


def test_appending_costs_the_driver_next_to_nothing(track) -> None:
    tracker = track()
    begin(tracker, "a")
    start = time.perf_counter()
    for number in range(1, 301):
        tracker.log_epoch("a", epoch(number))
    assert (time.perf_counter() - start) / 300 < 0.002
    deliver(tracker)


def test_holding_a_tracker_imports_no_engine() -> None:
    code = "import sys, see_tune.tracking.mlflow_tracker; print([n for n in ('mlflow', 'torch', 'ray') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


OFFLINE_STUDY = """
import socket, sys, time
from pathlib import Path
from see_tune.home import Home
from see_tune.tracking.mlflow_tracker import Tracker
from see_tune.tracking.registry import Candidate

def refuse(self, address, *rest):
    raise AssertionError(f"a connection to {address}")
socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = lambda *address, **rest: refuse(None, address)

home, model = Home(Path(sys.argv[1])), Path(sys.argv[2])
tracker = Tracker(home, study="s", dataset="glyphs", uri="local")
tracker.start_study(params={"a": 1}, tags={}, started_at=1.0)
tracker.start_run("f0", name="final see s0", params={}, tags={}, started_at=1.0)
tracker.register("f0", model, Candidate("s", "glyphs", 0.5, "val_recall_at_1", "f", "s", "honest", "32", "glyphnet", 16))
tracker.end_study(status="complete", ended_at=2.0)
assert tracker.drain(100) == 0 and tracker.refused() == (), (tracker.away(), tracker.refused())
assert tracker.registration("f0").champion
tracker.close()
"""


def test_nothing_is_written_outside_the_home_or_printed_or_sent(tmp_path: Path, model_folder: Path) -> None:
    outside = [tmp_path / name for name in ("cwd", "user", "tmp")]
    for folder in outside:
        folder.mkdir()
    model = shutil.copytree(model_folder, tmp_path / "home" / "studies" / "s" / "final")
    cwd, user, tmp = outside
    environment = {**os.environ, "HOME": str(user), "TMPDIR": str(tmp), "PYTHONPATH": str(Path(__file__).parents[3])}
    environment = {name: value for name, value in environment.items() if not name.startswith("MLFLOW_")}
    study = [sys.executable, "-c", OFFLINE_STUDY, str(tmp_path / "home"), str(model)]
    done = subprocess.run(study, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path for folder in outside for path in folder.rglob("*")] == []
