"""A cluster in containers, built from this tree and thrown away: its own project, ports, secrets and volumes."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("docker", "see_tune", "search_spaces", "docker-compose.yml", ".dockerignore", "pyproject.toml", "requirements.lock")
UP_S = 900.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if ROOT / "tests" / "cluster" in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:  # whichever comes first pays for the image
                item.add_marker(pytest.mark.timeout(UP_S + 300))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listening_ports() -> dict[str, int]:
    """TCP ports that anything on this machine listens on, by their sockets' inodes."""
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return {line[9]: int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A"}


class Stack:
    """`docker compose` over a copy of this tree, on one host."""

    def __init__(self, folder: Path, project: str) -> None:
        for name in (*BUILT_FROM, "README.md", "LICENSE"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("secrets", "__pycache__"))
            else:
                shutil.copy2(source, folder / name)
        (folder / "data").mkdir()
        self.folder, self.project = folder, project
        self.jobs_port, self.mlflow_port = _free_port(), _free_port()
        self.address = f"http://127.0.0.1:{self.jobs_port}"
        self.mlflow = f"http://127.0.0.1:{self.mlflow_port}"
        self.secrets = folder / "docker" / "secrets"
        self.listening_before = set(listening_ports().values())
        self.environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": self.project,
            "SEE_TUNE_TAG": "test",
            "SEE_TUNE_CPUS": "1",
            "SEE_TUNE_SHM": "1gb",
            "SEE_TUNE_JOBS_PORT": str(self.jobs_port),
            "SEE_TUNE_MLFLOW_PORT": str(self.mlflow_port),
        }

    @staticmethod
    def others_ports() -> set[int]:
        """TCP ports of this machine that processes listen on which are neither in a container nor docker's own."""
        ports, found = listening_ports(), set[int]()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if "docker" in (process / "cgroup").read_text() or (process / "exe").readlink().name == "docker-proxy":
                    continue
                for link in (process / "fd").iterdir():
                    with suppress(OSError):  # closed meanwhile
                        inode = str(link.readlink()).removeprefix("socket:[").removesuffix("]")
                        found |= {ports[inode]} if inode in ports else set()
        return found

    def run(self, *command: str, timeout_s: float = 120, check: bool = True) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def compose(self, *arguments: str, timeout_s: float = 120, check: bool = True) -> str:
        return self.run("docker", "compose", *arguments, timeout_s=timeout_s, check=check)

    def see_tune(self, *arguments: str, token: bool = True, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """The command on this machine, outside the containers, with the cluster's token or without."""
        environment = {name: value for name, value in self.environment.items() if not name.startswith("RAY_")}
        if token:
            environment["RAY_AUTH_TOKEN_PATH"] = str(self.secrets / "ray_token")
        return subprocess.run(
            [sys.executable, "-m", "see_tune.cli.app", *arguments],
            cwd=self.folder,
            env={**environment, "PYTHONPATH": str(ROOT), "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    @staticmethod
    def wait_for(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
        """Seconds until `condition` held."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() - begun < timeout_s, f"{what}: not within {timeout_s:.0f} s"
            time.sleep(1)
        return time.monotonic() - begun

    def container(self, service: str, number: int = 1) -> str:
        return f"{self.project}-{service}-{number}"

    def health(self, container: str) -> str:
        return self.run("docker", "inspect", "--format", "{{.State.Health.Status}}", container, check=False).strip()

    def crash(self, container: str) -> None:
        """SIGKILL to the container's main process; `docker kill` would count as a stop by hand, and nothing restarts it."""
        os.kill(int(self.run("docker", "inspect", "--format", "{{.State.Pid}}", container)), 9)

    def rows(self, sql: str) -> list[list[str]]:
        """Rows of Optuna's database."""
        psql = ("psql", "--host=/var/run/postgresql", "--username=postgres", "--dbname=optuna", "--csv", "--tuples-only")
        output = self.in_service("postgres", *psql, "--command", sql, check=False)
        return [line.split(",") for line in output.splitlines()]

    def in_service(self, service: str, *command: str, check: bool = True) -> str:
        """What a command prints inside a service's first container."""
        return self.compose("exec", "--no-TTY", service, *command, check=check)

    def summary(self, study: str) -> dict[str, object]:
        """summary.json of a study on the cluster's shared folder."""
        found: dict[str, object] = json.loads(self.in_service("head", "cat", f"/studies/studies/{study}/summary.json"))
        return found

    def login(self, password: str | None = None) -> dict[str, str]:
        """The headers that let the admin into MLflow; with `password`, or with the one that was made."""
        made = re.search(r"^admin_password = (\w+)$", (self.secrets / "mlflow.ini").read_text(), re.M)
        assert made is not None
        return {"Authorization": "Basic " + base64.b64encode(f"admin:{password or made[1]}".encode()).decode()}

    def secret_values(self) -> list[str]:
        """Every random value of docker/secrets."""
        text = "\n".join(file.read_text() for file in self.secrets.iterdir() if not file.name.startswith("tls."))
        return sorted({word for line in text.splitlines() for word in line.replace(":", " ").split() if len(word) == 64})


@pytest.fixture(scope="session")
def engine() -> None:
    """A container engine with compose, or a skip that says so."""
    if shutil.which("docker") is None or subprocess.run(["docker", "compose", "ps"], capture_output=True, check=False).returncode:
        found = subprocess.run(["docker", "version"], capture_output=True, check=False) if shutil.which("docker") else None
        if found is None or found.returncode:
            pytest.skip("no container engine answers: start one, or `make cluster-test ENGINE=...` with a script that does")


@pytest.fixture(scope="session")
def stack(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two workers of one core, up and healthy."""
    stack = Stack(tmp_path_factory.mktemp("stack"), "see-tune-test")
    stack.run("docker/make-secrets")
    try:
        stack.compose("up", "--detach", "--build", "--wait", "--scale", "worker=2", timeout_s=UP_S)
        yield stack
    finally:
        if "SEE_TUNE_KEEP_STACK" not in os.environ:
            stack.compose("down", "--volumes", "--timeout", "5", check=False)
