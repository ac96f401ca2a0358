"""The UI is MLflow's, on this machine alone, with our lines on the terminal, and nothing of it is left."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import see_tune
from see_tune.errors import SpecError, StudyError, TrackingError, UserError
from see_tune.home import Home
from see_tune.tracking.connection import connect
from see_tune.tracking.ui import serve_ui

# As a console script starts: this folder is not on its path.
ELSEWHERE = {**os.environ, "PYTHONPATH": str(Path(see_tune.__file__).parents[1])}


def refuse(addresses: Mapping[str, str]) -> None:
    raise AssertionError(addresses)


def group_of(pid: int) -> list[int]:
    """The processes of the session that `pid` leads."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == pid and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def test_the_terminal_shows_the_address_and_ctrl_c_ends_every_process(tmp_path: Path, free_port: Callable[[], int]) -> None:
    connect(Home(tmp_path), "local").create_experiment("see-tune/mine", (tmp_path / "artifacts").as_uri())
    port = free_port()
    command = [sys.executable, "-P", "-m", "see_tune.cli.app", "ui", "--home", str(tmp_path), "--port", str(port)]
    (tmp_path / "click.py").write_text("raise ImportError('a file of the user')")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=ELSEWHERE) as ui:
        assert ui.stdout is not None
        address = f"http://127.0.0.1:{port}/#/experiments/1/runs?workflowType=machine_learning&orderByKey="
        assert ui.stdout.readline().startswith(f"see-tune/mine   {address}")
        assert ui.stdout.readline() == "MLflow is running. Ctrl-C ends it\n"
        children = (Path("/proc") / str(ui.pid) / "task" / str(ui.pid) / "children").read_text().split()
        servers = [pid for child in children for pid in group_of(int(child))]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/ajax-api/2.0/mlflow/experiments/get-by-name?experiment_name=see-tune%2Fmine")
        assert connection.getresponse().status == 200
        ui.send_signal(signal.SIGINT)
        printed, errors = ui.communicate(timeout=30)
    assert (printed, errors, ui.returncode) == ("ended\n", "", 0)
    assert servers and not [pid for pid in servers if _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_ui_that_fails_shows_what_it_said(tmp_path: Path, free_port: Callable[[], int]) -> None:
    home = Home(tmp_path)
    home.mlflow_db.write_text("no database")
    with pytest.raises(TrackingError, match=r"(?s)ended by itself \(exit code \d+\).*ui\.log:.*file is not a database"):
        serve_ui(home, port=free_port(), ready=refuse)


def test_a_port_that_is_taken_is_refused_with_another(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.mlflow_db.touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port {port} cannot be had"):
            serve_ui(home, port=port, ready=refuse)


def test_the_ui_of_an_empty_home_or_of_a_server_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="see-tune run"):
        serve_ui(Home(tmp_path), port=5000, ready=refuse)
    with pytest.raises(SpecError, match="open http://host:5000"):
        serve_ui(Home(tmp_path), "http://host:5000", port=5000, ready=refuse)
