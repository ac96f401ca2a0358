"""A second host joins. The first is this machine; the second has a network and an address of its own, from which nothing of the
first is reached but what a network carries: it is the container that the second host's worker shares its network with.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import free_port, listening_ports

if TYPE_CHECKING:
    from tests.cluster.conftest import Stack

NAME = "see-tune-test-hosts"
FIRST = {"COMPOSE_PROJECT_NAME": NAME, "COMPOSE_FILE": "docker-compose.yml:docker/compose.hosts.yml"}
SECOND = {"COMPOSE_PROJECT_NAME": f"{NAME}-second", "COMPOSE_FILE": "docker/compose.worker.yml:second.yml"}
FIXED_PORTS = {5432, 6379, 8265}
ADDRESS = "http://127.0.0.1:8265"
SMALL = ("train.epochs=3", "validation.rerank_top=0", "final=none", "pruner.name=none", "resources.cpus=1")


@dataclass(frozen=True)
class Hosts:
    """first, second: their addresses; the folder of the studies is shared, as by a network file system."""

    stack: Stack
    first: str
    second: str
    mlflow_port: int = field(default_factory=free_port)

    def compose(self, settings: dict[str, str], *arguments: str, check: bool = True) -> str:
        """`docker compose` on one of the hosts."""
        own = {"SEE_TUNE_ADDRESS": self.first if settings is FIRST else self.second, "SEE_TUNE_HEAD": f"{self.first}:6379"}
        own["SEE_TUNE_MLFLOW_PORT"] = str(self.mlflow_port)  # another MLflow has the stack's
        shared = {"SEE_TUNE_STUDIES": str(self.stack.folder / "shared"), "SEE_TUNE_DATA": str(self.stack.folder / "data")}
        done = subprocess.run(
            ["docker", "compose", *arguments],
            cwd=self.stack.folder,
            env={**self.stack.environment, **settings, **own, **shared},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def hosts(stack: Stack) -> Iterator[Hosts]:
    """A head on the first host, which works on nothing itself, and a worker on the second."""
    if taken := FIXED_PORTS & set(listening_ports().values()):
        pytest.skip(f"the first of several hosts listens on fixed ports, of which others here have {sorted(taken)}")
    shared = stack.folder / "shared"
    shared.mkdir()
    os.chown(shared, 1000, 1000)
    (stack.folder / "second.yml").write_text(f"services: {{worker: {{network_mode: 'container:{NAME}'}}}}\n")
    inspect = ("docker", "inspect", "--format")
    with ExitStack() as after:
        stack.run("docker", "network", "create", NAME)
        after.callback(stack.run, "docker", "network", "rm", NAME, check=False)
        host = ("--name", NAME, "--hostname", "second", "--network", NAME, "--entrypoint", "sleep")
        stack.run("docker", "run", "--detach", "--init", *host, "see-tune:test", "infinity")
        after.callback(stack.run, "docker", "rm", "--force", "--volumes", NAME, check=False)
        first = stack.run("docker", "network", "inspect", "--format", "{{(index .IPAM.Config 0).Gateway}}", NAME).strip()
        second = stack.run(*inspect, f'{{{{(index .NetworkSettings.Networks "{NAME}").IPAddress}}}}', NAME).strip()
        hosts = Hosts(stack, first, second)
        for settings, workers in ((FIRST, "0"), (SECOND, "1")):
            after.callback(hosts.compose, settings, "down", "--volumes", "--timeout", "5", check=False)
            hosts.compose(settings, "up", "--detach", "--wait", "--scale", f"worker={workers}")
        yield hosts


def test_worker_of_a_second_host_trains_what_the_first_is_given(hosts: Hosts) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    submitted = hosts.stack.see_tune("submit", "search_spaces/glyphs.yaml", "--trials", "2", *settings, "--address", ADDRESS)
    followed = hosts.stack.see_tune("logs", "glyphs", "--follow", "--address", ADDRESS, timeout_s=240)

    assert submitted.returncode == 0, submitted.stderr
    assert followed.returncode == 0, followed.stdout + followed.stderr
    summary = json.loads((hosts.stack.folder / "shared" / "studies" / "glyphs" / "summary.json").read_text())
    assert (summary["status"], summary["complete"], summary["failed"]) == ("done", 2, 0)
    # The only node with cores to train on is the second host's, under the address that it gave.
    code = "import json, ray; ray.init('auto', log_to_driver=False, logging_level='ERROR'); print(json.dumps(ray.nodes()))"
    nodes = json.loads(hosts.compose(FIRST, "exec", "--no-TTY", "head", "python", "-c", code))
    assert {node["NodeManagerAddress"]: node["Resources"].get("CPU", 0) for node in nodes} == {hosts.first: 0, hosts.second: 1}


def test_another_host_without_the_token_reaches_nothing_that_takes_commands(hosts: Hosts) -> None:
    code = f"import ray; ray.init('{hosts.first}:6379', log_to_driver=False); print('in', ray.cluster_resources())"
    host = ["docker", "run", "--rm", "--network", f"container:{NAME}", "--env", "RAY_AUTH_MODE=token"]
    python = ["see-tune:test", "timeout", "60", "python", "-c"]
    done = subprocess.run(
        [*host, "--env", "RAY_AUTH_TOKEN=wrong", *python, code], capture_output=True, text=True, timeout=120, check=False
    )
    assert "InvalidAuthToken" in done.stderr and "in {" not in done.stdout

    knock = f"import socket; print([p for p in (5000, 5432, 8265) if socket.socket().connect_ex(('{hosts.first}', p)) == 0])"
    done = subprocess.run([*host, *python, knock], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "[]\n", done.stderr
