"""One driver a study, on whichever host."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest

from see_tune import holding
from see_tune.errors import StudyError
from see_tune.holding import Holder, ask_to_stop, held, holder_of, wait_until_free
from see_tune.home import Home, StudyFolder

HOLD = """
import pathlib, sys, time
from see_tune import holding
from see_tune.home import Home

holding._BEAT_S = 0.05
"""
# Another host: its lock is not seen here, and its kernel is another.
ELSEWHERE = """
import socket
holding._boot = lambda: "another kernel"
holding.network_file_system = lambda folder: "nfs4"
unseen = type("Unseen", (), {"acquire": lambda *a, **n: 1, "release": lambda *a: 1})
holding.filelock.FileLock = lambda *arguments, **named: unseen()
socket.gethostname = lambda: "elsewhere"
"""
HELD = """
with holding.held(Home(pathlib.Path(sys.argv[1])).study("s")):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return Home(tmp_path).study("s").make()


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process looks at a network file system, and does not wait long."""
    monkeypatch.setattr(holding, "network_file_system", lambda folder: "nfs4")
    monkeypatch.setattr(holding, "_STILL_S", 1.0)
    monkeypatch.setattr(holding, "_SETTLED_S", 0.1)


def hold(home: Path, *, elsewhere: bool = False) -> subprocess.Popen[str]:
    """Another process that runs the study."""
    code = HOLD + (ELSEWHERE if elsewhere else "") + HELD
    process = subprocess.Popen([sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_driver_is_told_pid_and_host_of_the_first(folder: StudyFolder, tmp_path: Path) -> None:
    with hold(tmp_path) as other:
        assert holder_of(folder).pid == other.pid
        with pytest.raises(StudyError, match=rf"running already \(pid {other.pid} on .*see-tune stop s --home "), held(folder):
            pass
        other.kill()


def test_lock_of_a_dead_process_is_taken_over_at_once(folder: StudyFolder, tmp_path: Path) -> None:
    with hold(tmp_path) as other:
        os.kill(other.pid, signal.SIGKILL)
    assert (folder.root / "lock.holder").is_file()  # what it left
    assert holder_of(folder) is None
    start = time.monotonic()
    with held(folder):
        assert time.monotonic() - start < 1
    assert holder_of(folder) is None


def test_lock_of_a_container_that_was_killed_is_taken_over_at_once(folder: StudyFolder) -> None:
    """Same volume, another host name and kernel boot, no lock: on a local disk the lock alone decides."""
    holding._write_beat(folder, Holder(7, "3f9a1c20", 0.0, "before the reboot"), 12)
    start = time.monotonic()
    with held(folder):
        assert time.monotonic() - start < 1


def test_driver_of_another_host_is_seen_by_its_count(folder: StudyFolder, tmp_path: Path, blind: None) -> None:
    with hold(tmp_path, elsewhere=True) as other:
        assert str(holder_of(folder)) == f"pid {other.pid} on elsewhere"
        with pytest.raises(StudyError, match="on elsewhere"), held(folder):
            pass
        os.kill(other.pid, signal.SIGKILL)
    assert holder_of(folder) is None
    with held(folder):
        pass


def test_stop_reaches_a_driver_of_another_host(folder: StudyFolder, tmp_path: Path, blind: None) -> None:
    with hold(tmp_path, elsewhere=True) as other:
        holder = ask_to_stop(folder)
        wait_until_free(folder, holder)
        assert other.wait(timeout=10) == -signal.SIGTERM
    with held(folder):  # a wish that was meant for another stops nobody
        assert not (folder.root / "lock.stop").exists()


def test_driver_that_stood_still_and_was_taken_over_ends_at_once(folder: StudyFolder, tmp_path: Path, blind: None) -> None:
    with hold(tmp_path, elsewhere=True) as other:
        os.kill(other.pid, signal.SIGSTOP)
        with held(folder):
            os.kill(other.pid, signal.SIGCONT)
            assert other.wait(timeout=10) == 1
            assert holder_of(folder).pid == os.getpid()


def test_of_two_that_start_at_once_without_locks_one_stays(
    folder: StudyFolder, monkeypatch: pytest.MonkeyPatch, blind: None
) -> None:
    monkeypatch.setattr(holding, "_SETTLED_S", 0.5)
    later = Holder(7, "elsewhere", 0.0, "another kernel")
    threading.Timer(0.2, holding._write_beat, [folder, later, 0]).start()
    with pytest.raises(StudyError, match="pid 7 on elsewhere"), held(folder):
        pass
    assert json.loads((folder.root / "lock.holder").read_text())["holder"]["pid"] == 7


def test_looking_on_does_not_refuse_a_driver_that_starts_at_that_moment(folder: StudyFolder) -> None:
    look = filelock.FileLock(folder.lock_file, is_singleton=False, thread_local=False)
    look.acquire()
    threading.Timer(0.1, look.release).start()
    with held(folder):
        assert not look.is_locked


def test_stop_ends_the_process_that_holds_the_study(folder: StudyFolder, tmp_path: Path) -> None:
    with hold(tmp_path) as other:
        holder = ask_to_stop(folder)
        wait_until_free(folder, holder, poll_s=0.02)
        assert other.wait(timeout=10) == -signal.SIGTERM


def test_stop_of_what_does_not_run_sends_no_signal(folder: StudyFolder) -> None:
    holding._write_beat(folder, Holder(os.getpid(), "here", 0.0), 3)
    folder.lock_file.touch()
    with pytest.raises(StudyError, match="is not running"):
        ask_to_stop(folder)


def test_half_written_mark_is_no_holder(folder: StudyFolder) -> None:
    (folder.root / "lock.holder").write_text('{"holder": {"pid"')
    assert holder_of(folder) is None


def test_whoever_looks_wants_nothing_but_to_read(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is read-only by now, or a colleague's home."""
    open_ = os.open

    def open_on_a_read_only_disk(path: str, flags: int, *more: int, **named: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return open_(path, flags, *more, **named)

    with hold(folder.home.root) as holder:
        monkeypatch.setattr(os, "open", open_on_a_read_only_disk)
        assert holder_of(folder).pid == holder.pid
        holder.kill()
        holder.wait()
        assert holder_of(folder) is None
