"""A second host joins. The first is this machine; the second has a network and an address of its own, from which nothing of the
first is reached but what a network carries: it is the container that the second host's worker shares its network with.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.conftest import Stack, listening_ports

NAME = "see-tune-test-host"
FIXED_PORTS = {5432, 6379, 8265, 52366}
ADDRESS = "http://127.0.0.1:8265"
SMALL = ("train.epochs=3", "validation.rerank_top=0", "final=none", "pruner.name=none", "resources.cpus=1")


@dataclass(frozen=True)
class Host:
    """A checkout of its own; address: what the other host reaches it by."""

    stack: Stack
    address: str

    def set_up(self, files: str, shared: Path, **more: str) -> None:
        """Write .env as the head of the compose file says."""
        settings = {
            "COMPOSE_FILE": files,
            "SEE_TUNE_UID": "1000",
            "SEE_TUNE_ADDRESS": self.address,
            "SEE_TUNE_STUDIES": str(shared),
            "SEE_TUNE_DATA": str(self.stack.folder / "data"),
            **more,
        }
        (self.stack.folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


@pytest.fixture(scope="module")
def hosts(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """A head on the first host, which works on nothing itself, and a worker on the second; they share a folder."""
    if taken := FIXED_PORTS & set(listening_ports().values()):
        pytest.skip(f"the first of several hosts listens on fixed ports, of which others here have {sorted(taken)}")
    shared = tmp_path_factory.mktemp("shared")
    os.chown(shared, 1000, 1000)
    with ExitStack() as after:
        stack.run("docker", "network", "create", NAME)
        after.callback(stack.run, "docker", "network", "rm", NAME, check=False)
        machine = ("--name", NAME, "--hostname", "second", "--network", NAME, "--entrypoint", "sleep")
        stack.run("docker", "run", "--detach", "--init", *machine, "see-tune:test", "infinity")
        after.callback(stack.run, "docker", "rm", "--force", "--volumes", NAME, check=False)
        network = f'(index .NetworkSettings.Networks "{NAME}")'
        addresses = stack.run("docker", "inspect", "--format", f"{{{{{network}.Gateway}}}} {{{{{network}.IPAddress}}}}", NAME)
        first, second = (
            Host(Stack(tmp_path_factory.mktemp(which), f"{NAME}-{which}"), address)
            for which, address in zip(("first", "second"), addresses.split(), strict=True)
        )

        first.set_up("docker-compose.yml:docker/compose.hosts.yml", shared)
        first.stack.run("docker/make-secrets")
        after.callback(first.stack.compose, "down", "--volumes", "--timeout", "5", check=False)
        first.stack.compose("up", "--detach", "--wait", "--scale", "worker=0", timeout_s=300)

        second.set_up("docker/compose.worker.yml:second.yml", shared, SEE_TUNE_HEAD=f"{first.address}:6379")
        (second.stack.folder / "second.yml").write_text(f"services: {{worker: {{network_mode: 'container:{NAME}'}}}}\n")
        second.stack.secrets.mkdir()
        shutil.copy2(first.stack.secrets / "ray_token", second.stack.secrets)
        os.chown(second.stack.secrets / "ray_token", 1000, 1000)
        after.callback(second.stack.compose, "down", "--volumes", "--timeout", "5", check=False)
        second.stack.compose("up", "--detach", "--wait", timeout_s=300)
        yield first, second


def test_worker_of_a_second_host_trains_what_the_first_is_given(hosts: tuple[Host, Host]) -> None:
    first, second = hosts
    settings = [part for setting in SMALL for part in ("--set", setting)]
    submitted = first.stack.see_tune("submit", "search_spaces/glyphs.yaml", "--trials", "2", *settings, "--address", ADDRESS)
    followed = first.stack.see_tune("logs", "glyphs", "--follow", "--address", ADDRESS, timeout_s=240)

    assert submitted.returncode == 0, submitted.stderr
    assert followed.returncode == 0, followed.stdout + followed.stderr
    summary = first.stack.summary("glyphs")
    assert (summary["status"], summary["complete"], summary["failed"]) == ("done", 2, 0)
    # The only node with a core to train on is the second host's, under the address that it gave.
    code = "import json, ray; ray.init('auto', log_to_driver=False, logging_level='ERROR'); print(json.dumps(ray.nodes()))"
    nodes = json.loads(first.stack.in_service("head", "python", "-c", code))
    assert {node["NodeManagerAddress"]: node["Resources"].get("CPU", 0) for node in nodes} == {
        first.address: 0,
        second.address: 1,
    }


def test_another_host_without_the_token_reaches_nothing_that_takes_commands(hosts: tuple[Host, Host]) -> None:
    first = hosts[0].address
    ports = (6379, 5432, 8265, hosts[0].stack.mlflow_port)
    there = ["docker", "run", "--rm", "--network", f"container:{NAME}", "--env", "RAY_AUTH_MODE=token"]
    python = ["--env", "RAY_AUTH_TOKEN=wrong", "see-tune:test", "timeout", "60", "python", "-c"]
    join = f"import ray; ray.init('{first}:6379', log_to_driver=False); print('in', ray.cluster_resources())"
    knock = f"import socket; print([p for p in {ports} if socket.socket().connect_ex(('{first}', p)) == 0])"

    joined, knocked = (
        subprocess.run([*there, *python, code], capture_output=True, text=True, timeout=120, check=False)
        for code in (join, knock)
    )

    assert "InvalidAuthToken" in joined.stderr and "in {" not in joined.stdout
    assert knocked.stdout == "[6379]\n", knocked.stderr
