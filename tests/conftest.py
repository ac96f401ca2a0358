"""A real Postgres for whoever needs one, and a Ctrl-C that reaches what the tests start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

PASSWORD = "not-in-any-file-of-a-study"
SMALL = """
study: small
dataset: {name: glyphs, classes: 40}
model: {embedding_dim: 12}
train: {epochs: 2}
search:
  see.n_aug: {int: [1, 11]}
pruner: {name: none}
budget: {trials: 2}
validation: {fraction: 0.4, rerank_top: 0}
final: {seeds: 1}
"""


def pytest_configure() -> None:
    """A shell that starts the tests in the background has them, and every process they start, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Gives a port of 127.0.0.1 that nobody listens on, another at each call."""
    return _free_port


@pytest.fixture(scope="session")
def processes_below() -> Callable[[int], list[int]]:
    """Every process below one, by the parent that the kernel names."""

    def find(pid: int) -> list[int]:
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            except OSError:  # it ended meanwhile
                continue
        found = [pid]
        for above in found:
            found += [child for child, parent in parents.items() if parent == above]
        return found[1:]

    return find


@pytest.fixture(scope="session")
def small_study() -> str:
    """The YAML of a study `small` that ends with a champion, as fast as one can."""
    return SMALL


class Postgres:
    """A server of this test run's own on loopback, that asks for a password.

    url: of a database in it, without the password; password_file: holds it.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._data = folder / "data"
        self.password = PASSWORD
        self.password_file = folder / "password"
        self.password_file.write_text(f"{PASSWORD}\n")
        self._port = _free_port()
        self._as_user: Sequence[str] = ()
        if os.geteuid() == 0:  # Postgres refuses to run as root
            self._as_user = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
            for path in (folder, self.password_file):
                shutil.chown(path, "nobody", "nogroup")
        self._run("initdb", "--no-sync", "--auth=scram-sha-256", "--username=me", f"--pwfile={self.password_file}")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://me@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        self._run("pg_ctl", "start", "--wait", "--silent", f"--log={self._data.parent / 'log'}", f"--options={options}")

    def stop(self) -> None:
        """As a container's restart does it: open connections are cut."""
        self._run("pg_ctl", "stop", "--wait", "--silent", "--mode=immediate")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._programs / program), "-D", str(self._data), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")


def _find_programs() -> Path | None:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    found = shutil.which("initdb")
    return folders[-1] if folders else Path(found).resolve().parent if found else None


@pytest.fixture(scope="session")
def _postgres_server() -> Iterator[Postgres]:
    programs = _find_programs()
    if programs is None:
        pytest.skip("no Postgres here; Debian's package postgresql has it")
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    server = Postgres(programs, folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def postgres(_postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Postgres:
    """The server, with its password where see-tune looks for it."""
    monkeypatch.setenv("SEE_TUNE_STORAGE_PASSWORD_FILE", str(_postgres_server.password_file))
    return _postgres_server
