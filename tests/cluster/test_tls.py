"""The cluster behind HTTPS: the same login and the same token, and a certificate that is checked."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster.conftest import Stack

FILES = ("--file", "docker-compose.yml", "--file", "docker/compose.tls.yml")
MLFLOW_PORT, JOBS_PORT = 18443, 18444


@pytest.fixture(scope="module")
def tls(stack: Stack) -> Iterator[Stack]:
    if shutil.which("openssl") is None:
        pytest.skip("a certificate for the test is made with openssl, which is not here")
    certificate, key = stack.secrets / "tls.crt", stack.secrets / "tls.key"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files],
        check=True,
        capture_output=True,
    )
    stack.run("docker/make-secrets")
    stack.environment |= {
        "SEE_TUNE_TLS_HOST": "localhost",
        "SEE_TUNE_TLS_MLFLOW_PORT": str(MLFLOW_PORT),
        "SEE_TUNE_TLS_JOBS_PORT": str(JOBS_PORT),
        "REQUESTS_CA_BUNDLE": str(certificate),
    }
    stack.compose(*FILES, "up", "--detach", "--build", "--wait", "--scale", "worker=2", timeout_s=400)
    yield stack
    stack.compose(*FILES, "rm", "--force", "--stop", "tls")


def get(stack: Stack, path: str, headers: dict[str, str], trusted: bool = True) -> int:
    context = ssl.create_default_context(cafile=str(stack.secrets / "tls.crt") if trusted else None)
    try:
        request = urllib.request.Request(f"https://localhost:{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=20, context=context) as response:
            status: int = response.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


def test_mlflow_behind_https_asks_for_the_same_password(tls: Stack) -> None:
    url = f"{MLFLOW_PORT}/api/2.0/mlflow/experiments/search?max_results=1"

    assert get(tls, url, {}) == 401
    assert get(tls, url, tls.login()) == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        get(tls, url, tls.login(), trusted=False)


def test_study_is_submitted_and_followed_through_https(tls: Stack) -> None:
    address = f"https://localhost:{JOBS_PORT}"

    refused = tls.see_tune("list", "--address", address, token=False)
    submitted = tls.see_tune("submit", "search_spaces/cars.yaml", "--address", address)
    followed = tls.see_tune("logs", "cars-deit128", "--follow", "--address", address)

    assert refused.returncode == 2
    assert submitted.returncode == 0, submitted.stderr
    # A study whose dataset is not there ends at once.
    assert "see-tune: " in followed.stdout and "/data/cars" in followed.stdout, followed.stderr
    assert "cars" not in tls.in_service("head", "ls", "/studies/orders")
