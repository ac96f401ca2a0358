"""The composed cluster as it stands after `up`: what it is made of, who may come in, and what it keeps to itself."""

from __future__ import annotations

import re
import socket
import stat
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster.conftest import Stack

ROOT = Path(__file__).parents[2]

TOP, WORKER = "docker-compose.yml", "docker/compose.worker.yml"
JOINS = {
    "SEE_TUNE_UID": "1000",
    "SEE_TUNE_HEAD": "192.0.2.1:6379",
    "SEE_TUNE_ADDRESS": "192.0.2.2",
    "SEE_TUNE_STUDIES": "/studies",
    "SEE_TUNE_DATA": "/data",
}
COMPOSE_FILES: dict[tuple[str, ...], dict[str, str]] = {
    (TOP,): {},
    (TOP, "docker/compose.gpu.yml"): {},
    (TOP, "docker/compose.hosts.yml"): {"SEE_TUNE_ADDRESS": "192.0.2.1"},
    (TOP, "docker/compose.tls.yml"): {"SEE_TUNE_TLS_HOST": "cluster.example"},
    (WORKER,): JOINS,
    (WORKER, "docker/compose.worker-gpu.yml"): JOINS,
}
INNER_PORTS = (5000, 5432, 6379, 8265, 10001, 52365)
SERVICES = ("head-1", "worker-1", "worker-2", "mlflow-1", "postgres-1")


def answer(url: str, headers: dict[str, str] | None = None) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=20) as response:
            status: int = response.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


def test_every_compose_file_is_clean(stack: Stack) -> None:
    for files, settings in COMPOSE_FILES.items():
        environment = {**stack.environment, **settings, "COMPOSE_FILE": ":".join(files)}
        done = subprocess.run(
            ["docker", "compose", "config", "--quiet"],
            cwd=stack.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), files


def test_cluster_without_secrets_is_refused_before_anything_is_built(stack: Stack) -> None:
    command = ["docker", "compose", "--env-file", "/dev/null", "config", "--quiet"]
    environment = {name: value for name, value in stack.environment.items() if name != "SEE_TUNE_UID"}
    done = subprocess.run(command, cwd=stack.folder, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "make the secrets first, docker/make-secrets" in done.stderr


def test_images_are_pinned_and_leave_no_package_lists() -> None:
    text = "\n".join(file.read_text() for file in (ROOT / "docker").rglob("Dockerfile"))
    images = re.findall(r"^FROM (\S+)", text, re.M) + re.findall(r"image: (\S+)", (ROOT / "docker-compose.yml").read_text())

    assert images and all(":" in image and not image.endswith(":latest") for image in images)
    assert text.count("apt-get update") == text.count("rm -rf /var/lib/apt/lists/*")
    assert "--no-install-recommends" in text and not re.search(r"^(ADD|MAINTAINER) ", text, re.M)


def test_image_holds_no_cache_of_what_it_was_made_from(stack: Stack) -> None:
    look = "ls -d /var/cache/pip ~root/.cache ~see/.cache /var/lib/apt/lists/*_* /src/* 2> /dev/null; env | grep PIP_"
    command = ["docker", "run", "--rm", "--user=0", "--entrypoint=sh", "see-tune:test", "-c", look]

    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


def test_every_service_is_healthy_and_unprivileged(stack: Stack) -> None:
    for service in SERVICES:
        name = f"{stack.project}-{service}"
        assert stack.health(name) == "healthy"
        form = "{{.HostConfig.Privileged}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}} {{.HostConfig.ReadonlyRootfs}}"
        assert stack.run("docker", "inspect", "--format", form, name) == "false [ALL] [no-new-privileges:true] true\n"
    for service in ("head", "worker", "mlflow"):
        assert stack.in_service(service, "id", "-u").strip() == "1000"
    assert stack.in_service("head", "sh", "-c", "command -v cc gcc make; true") == ""


def test_secrets_belong_to_the_image_user_alone(stack: Stack) -> None:
    files = list(stack.secrets.iterdir())

    assert len(files) == 6
    assert {(stat.S_IMODE(file.stat().st_mode), file.stat().st_uid) for file in files} == {(0o400, 1000)}
    assert len(stack.secret_values()) == 6  # random, and none twice


def test_secrets_that_exist_are_kept(stack: Stack) -> None:
    before = {file.name: file.read_text() for file in stack.secrets.iterdir()}

    stack.run("docker/make-secrets")

    assert {file.name: file.read_text() for file in stack.secrets.iterdir()} == before


def test_no_secret_is_in_the_image_a_process_list_or_a_log(stack: Stack) -> None:
    places = {
        "history": stack.run("docker", "history", "--no-trunc", "see-tune:test"),
        "image": stack.run("docker", "image", "inspect", "see-tune:test"),
        "processes": subprocess.run(["ps", "-ef", "ww"], capture_output=True, text=True, check=True).stdout,
        "logs": stack.compose("logs"),
        "containers": stack.run("docker", "inspect", *(f"{stack.project}-{service}" for service in SERVICES)),
        "ray's logs": stack.in_service("head", "sh", "-c", "cat /tmp/ray/session_latest/logs/*.*"),
    }

    for secret in stack.secret_values():
        assert [place for place, text in places.items() if secret in text] == []


def test_jobs_api_refuses_whoever_has_no_token(stack: Stack) -> None:
    token = (stack.secrets / "ray_token").read_text()

    assert answer(f"{stack.address}/api/jobs/") in (401, 403)
    assert answer(f"{stack.address}/api/jobs/", {"Authorization": "Bearer wrong"}) in (401, 403)
    assert answer(f"{stack.address}/api/jobs/", {"Authorization": f"Bearer {token}"}) == 200
    refused = stack.see_tune("status", "glyphs", "--address", stack.address, token=False)
    assert refused.returncode == 2
    assert "RAY_AUTH_TOKEN_PATH=docker/secrets/ray_token" in refused.stderr


@pytest.mark.parametrize("address", ["head:6379", "ray://head:10001"])
def test_ray_refuses_whoever_has_no_token(stack: Stack, address: str) -> None:
    code = f"import ray; ray.init('{address}', log_to_driver=False); print('in', ray.cluster_resources())"
    python = ("env", "-u", "RAY_AUTH_TOKEN_PATH")

    for environment in (["RAY_AUTH_MODE=disabled"], ["RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN=wrong"]):
        output = stack.in_service("worker", *python, *environment, "timeout", "60", "python", "-c", code, check=False)
        assert "in {" not in output


@pytest.mark.parametrize("address", ["head:6379", "ray://head:10001"])
def test_ray_lets_in_whoever_has_the_token(stack: Stack, address: str) -> None:
    code = f"import ray; ray.init('{address}', log_to_driver=False); print('in', ray.cluster_resources())"

    # Ray gives the server that it starts for each client 30 s to come up, which a busy machine may miss once.
    stack.wait_for(lambda: "in {" in stack.in_service("worker", "python", "-c", code, check=False), 180, "who has the token, in")


def test_mlflow_asks_for_the_password_and_knows_its_names(stack: Stack) -> None:
    url = f"{stack.mlflow}/api/2.0/mlflow/experiments/search?max_results=1"
    assert answer(url) == 401
    assert answer(url, stack.login("password1234")) == 401
    assert answer(url, stack.login()) == 200
    assert answer(url, {**stack.login(), "Host": "elsewhere.example"}) == 403


def test_nothing_of_ours_listens_beyond_loopback(stack: Stack) -> None:
    published = stack.run("docker", "ps", "--filter", f"name={stack.project}-", "--format", "{{.Ports}}")
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    ports = {stack.jobs_port, stack.mlflow_port, *(set(INNER_PORTS) - stack.listening_before - stack.others_ports())}

    assert re.findall(r"(\S+):\d+->", published) == ["127.0.0.1", "127.0.0.1"]
    for address in addresses:
        for port in ports:
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
                probe.settimeout(2)
                assert probe.connect_ex((address, port)) != 0, f"{address}:{port}"


def test_node_without_its_token_does_not_start(stack: Stack) -> None:
    for service, variable in (
        ("head", "RAY_AUTH_TOKEN_PATH"),
        ("worker", "RAY_AUTH_MODE"),
        ("mlflow", "MLFLOW_AUTH_CONFIG_PATH"),
    ):
        command = ["docker", "run", "--rm", "--env", "RAY_AUTH_MODE=token", "--env", f"{variable}=", "see-tune:test", service]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, variable in done.stderr) == (2, True)


def test_mlflow_with_a_password_that_postgres_refuses_says_so_at_once(stack: Stack) -> None:
    wrong = (
        "echo postgres:5432:mlflow:mlflow:wrong > /tmp/wrong; chmod 0400 /tmp/wrong; PGPASSFILE=/tmp/wrong exec entrypoint mlflow"
    )
    command = ["docker", "compose", "exec", "--no-TTY", "mlflow", "sh", "-c", wrong]
    done = subprocess.run(
        command, cwd=stack.folder, env=stack.environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, "Postgres refuses the password" in done.stderr) == (2, True)
