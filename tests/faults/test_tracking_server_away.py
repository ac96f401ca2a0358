"""MLflow's server is down at the start, comes, is killed and comes back; the driver is killed too: nothing is lost or doubled."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from see_tune.data.transforms import Preprocessing
from see_tune.home import Home
from see_tune.model_folder import write_model_folder
from see_tune.models import build_model
from see_tune.results import EpochResult
from see_tune.spec.models import TrialSpec
from see_tune.tracking.connection import connect
from see_tune.tracking.mlflow_tracker import Tracker
from see_tune.tracking.registry import Candidate, fetch_model_folder, read_versions

NOW = 1_700_000_000.0
START_S = 100.0


class Server:
    """A real `mlflow server` on loopback, with a store of its own that outlives its processes."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}"
        self._command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", str(folder / "artifacts")),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        self._process = subprocess.Popen(
            self._command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server")
    yield server
    server.kill()


def epoch(number: int) -> EpochResult:
    return EpochResult(number, {"val/recall_at_1": number / 10}, NOW + number, 1.0)


def begin(tracker: Tracker) -> None:
    tracker.start_study(params={"train.epochs": 9}, tags={}, started_at=NOW)
    tracker.start_run("a", name="t000", params={"see.n_aug": 8}, tags={"phase": "search"}, started_at=NOW)


def runs_and_epochs(client: MlflowClient) -> tuple[list[Run], list[tuple[int, float]]]:
    experiment = client.get_experiment_by_name("see-tune/glyphs")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.run_name"])
    (child,) = [run for run in runs if run.info.run_name == "t000"]
    return runs, [(row.step, row.value) for row in client.get_metric_history(child.info.run_id, "val/recall_at_1")]


def run_driver(code: str, home: Home, *arguments: str) -> int:
    """Run a driver in a process of its own that kills itself; returns its exit status."""
    imports = (
        "import os, signal, sys, time; from pathlib import Path; "
        "from see_tune.home import Home; from see_tune.results import EpochResult; from see_tune.tracking.spool import Spool; "
        "from see_tune.tracking.mlflow_tracker import Tracker\n"
        "home, NOW = Home(Path(sys.argv[1])), 1_700_000_000.0\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, "-c", imports + code, str(home.root), *arguments], env=environment, check=False
    ).returncode


NEWLINE = "\n"
BEGIN = """
tracker.start_study(params={"train.epochs": 9}, tags={}, started_at=NOW)
tracker.start_run("a", name="t000", params={"see.n_aug": 8}, tags={"phase": "search"}, started_at=NOW)
tracker.log_epoch("a", EpochResult(1, {"val/recall_at_1": 0.1}, NOW + 1, 1.0))
"""
KILLED_BEFORE_DELIVERY = f"""
tracker = Tracker(home, study="s", dataset="glyphs", uri=sys.argv[2])
{BEGIN}
os.kill(os.getpid(), signal.SIGKILL)
"""
KILLED_AFTER_TELLING = f"""
Spool._settle = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
tracker = Tracker(home, study="s", dataset="glyphs", uri="local")
with tracker._spool._changed:  # no delivery before all three are queued: they are told in one batch
    {BEGIN.strip().replace(NEWLINE, NEWLINE + "    ")}
time.sleep(100)
"""


def test_a_server_that_comes_and_goes_costs_nothing(server: Server, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert run_driver(KILLED_BEFORE_DELIVERY, home, server.uri) == -signal.SIGKILL

    tracker = Tracker(home, study="s", dataset="glyphs", uri=server.uri)
    begin(tracker)  # the resumed study tells again what the killed one has told the spool
    tracker.log_epoch("a", epoch(1))
    for number in (2, 3):
        start = time.perf_counter()
        tracker.log_epoch("a", epoch(number))
        assert time.perf_counter() - start < 0.5
    assert tracker.drain(1) == 8
    assert "127.0.0.1" in str(tracker.away()) or tracker.away() is None  # None: mlflow is still being imported

    server.start()
    assert tracker.drain(START_S) == 0

    server.kill()
    tracker.log_epoch("a", epoch(4))
    assert tracker.drain(2) == 1
    assert "127.0.0.1" in str(tracker.away())
    spec = TrialSpec.model_validate({"dataset": {"name": "glyphs"}, "model": {"backbone": "glyphnet", "embedding_dim": 16}})
    model = build_model(backbone="glyphnet", embedding_dim=16, image_size=32)
    folder = write_model_folder(home.study("s").root / "final", model, spec.model_dump_json(), Preprocessing(32, 32))
    entered = Candidate("s", "glyphs", 0.5, "val_recall_at_1", "f", "s", "honest", "32", "glyphnet", 16)
    tracker.register("a", folder, entered)
    tracker.log_artifact(folder / "model.json")
    assert tracker.registration("a") is None

    server.start()
    assert tracker.drain(START_S) == 0
    assert tracker.refused() == ()
    tracker.close()

    client = connect(home, server.uri)
    runs, epochs = runs_and_epochs(client)
    assert [run.info.run_name for run in runs] == ["s", "t000"]
    assert epochs == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]
    assert tracker.registration("a").uri == "models:/see-tune.glyphs@champion"
    (version,) = read_versions(client, "glyphs")
    fetched = fetch_model_folder(client, version, tmp_path / "fetched")
    assert (fetched / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_driver_killed_between_telling_and_noting_leaves_no_double(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert run_driver(KILLED_AFTER_TELLING, home) == -signal.SIGKILL
    runs, epochs = runs_and_epochs(connect(home, "local"))
    assert len(runs) == 2
    assert epochs == [(1, 0.1)]  # MLflow has been told

    tracker = Tracker(home, study="s", dataset="glyphs", uri="local")
    assert tracker.undelivered() == 3  # the spool does not know
    assert tracker.drain(60) == 0
    assert tracker.refused() == ()
    tracker.close()
    assert [run.info.run_id for run in runs_and_epochs(connect(home, "local"))[0]] == [run.info.run_id for run in runs]
    assert runs_and_epochs(connect(home, "local"))[1] == epochs
