"""MLflow's own web UI over a home folder, for this machine alone.

The server is a child process, so that the terminal shows our lines and not its: those go to the home's ui.log, whose end is
shown where the server fails. It and its workers are one process group, and go together.
"""

from __future__ import annotations

import http
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

from see_tune.addresses import AUTO, LOCAL, find_tracking
from see_tune.errors import SpecError, StudyError, TrackingError, UserError
from see_tune.home import Home
from see_tune.tracking.connection import EXPERIMENT_PREFIX, store_uri

_HOST = "127.0.0.1"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PYTHONSAFEPATH": "1",  # the server imports nothing from the folder that somebody happens to be in
}
_ASKED_EVERY_S, _GRACE_S = 0.2, 10.0
_SHOWN_LINES = 15


def serve_ui(
    home: Home,
    uri: str = AUTO,
    *,
    port: int,
    ready: Callable[[Mapping[str, str]], None],
    best: str = "best/val_recall_at_1",
) -> None:
    """Serve until this process is interrupted (KeyboardInterrupt passes through).

    ready: given the address of each experiment's runs, by the experiment's name.
    best: the metric by which these are sorted, the highest first.

    Raises:
        StudyError: nothing was tracked in this home yet.
        SpecError: `uri` is a server, whose UI is already there.
        UserError: another program has the port.
        TrackingError: the server ended by itself.
    """
    command = _command(home, uri, port)
    _refuse_taken(port)
    with home.ui_log.open("wb") as log:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **_ENVIRONMENT},
            start_new_session=True,
        )
        try:
            while server.poll() is None and _ask(port, "/health") is None:
                time.sleep(_ASKED_EVERY_S)
            if server.poll() is None:
                ready(_addresses(port, best))
            server.wait()
        finally:
            _end(server)
    tail = "\n".join(home.ui_log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:])
    raise TrackingError(
        f"the MLflow UI ended by itself (exit code {server.returncode}); all it said is in {home.ui_log}:\n{tail}"
    )


def _command(home: Home, uri: str, port: int) -> list[str]:
    if (server := find_tracking(uri)) != LOCAL:
        raise SpecError(f"tracking.uri is {server}: that server shows its own UI; open {server} in a browser")
    if not home.mlflow_db.exists():
        raise StudyError(f"{home.mlflow_db} does not exist: no study of this home was tracked yet; see-tune run FILE makes one")
    return [
        *(sys.executable, "-m", "mlflow", "server", "--host", _HOST, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", store_uri(home, LOCAL), "--artifacts-destination", str(home.mlflow_artifacts)),
    ]


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise UserError(
                f"--port {port} cannot be had ({error.strerror or error}): another program has it, or another see-tune ui; "
                f"choose a free one, e.g. --port {port + 1 if port < 65535 else port - 1}"
            ) from error


def _addresses(port: int, best: str) -> dict[str, str]:
    """The runs of each experiment, in the mode for trained models: MLflow by itself begins with language models."""
    found = json.loads(_ask(port, "/ajax-api/2.0/mlflow/experiments/search?max_results=1000") or "{}")
    order = {"workflowType": "machine_learning", "orderByKey": f"metrics.`{best}`", "orderByAsc": "false"}
    return {
        experiment["name"]: f"http://{_HOST}:{port}/#/experiments/{experiment['experiment_id']}/runs?{urlencode(order)}"
        for experiment in found.get("experiments", ())
        if experiment["name"].startswith(EXPERIMENT_PREFIX)
    }


def _ask(port: int, path: str) -> bytes | None:
    """What the server answers; None where it does not, or says no."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _end(server: subprocess.Popen[bytes]) -> None:
    """The server and its workers: asked first, then made to."""
    for order in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, order)
        except ProcessLookupError:
            break
        try:
            server.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    server.wait()
