"""Who runs a study: one driver at a time, on whichever host. Two marks in the study's folder say so.

    lock           a lock of the operating system. It dies with its process, so a stale one needs no sweeping.
    lock.holder    whose it is, and a count that goes up every few seconds for as long as the process lives.

Under one kernel (a local disk, a volume that containers share) the lock alone decides. A network file system may not show
one host's lock to another, so there a holder of another host is watched: one whose count stands still is dead (its container
was killed, its machine lost), and is taken over. Nobody compares clocks.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock

from see_tune.errors import StudyError
from see_tune.home import StudyFolder
from see_tune.mounts import network_file_system

_PATIENCE_S = 0.5  # longer than another process takes to look whether the lock is held
_BEAT_S = 3.0
_STILL_S = 20.0  # a count that stands still for so long is a dead process's
_SETTLED_S = 1.0  # after which the later one of two that started at the same moment has written its name over the other's
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Holder:
    """The process that runs a study. started_at: Unix time in seconds; boot: names the kernel that it runs under."""

    pid: int
    host: str
    started_at: float
    boot: str = ""

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


@contextmanager
def held(folder: StudyFolder) -> Iterator[None]:
    """Hold the study; while it is held, `ask_to_stop` sends this process SIGTERM, from another host as well.

    Raises: StudyError that names the process which holds it.
    """
    lock = filelock.FileLock(folder.lock_file)
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except filelock.Timeout:
        raise running_already(folder, _read_holder(folder)) from None
    except OSError as error:
        raise StudyError(
            f"{folder.lock_file} cannot be locked ({error.strerror}): see-tune wants a file system with locks, or two drivers "
            f"could run one study; mount it with locks, or choose another home with --home DIR"
        ) from error
    try:
        if (other := _alive_elsewhere(folder)) is not None:
            raise running_already(folder, other)
        with _named(folder):
            yield
    finally:
        lock.release()


@contextmanager
def _named(folder: StudyFolder) -> Iterator[None]:
    me = Holder(os.getpid(), socket.gethostname(), time.time(), _boot())
    _stop_file(folder).unlink(missing_ok=True)  # meant for an earlier one
    _write_beat(folder, me, 0)
    if network_file_system(folder.root):
        time.sleep(_SETTLED_S)
        if (other := _read_holder(folder)) not in (me, None):
            raise running_already(folder, other)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(folder, me, ended), name="see-tune holder", daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        _holder_file(folder).unlink(missing_ok=True)


def _beat(folder: StudyFolder, me: Holder, ended: threading.Event) -> None:
    """Count until the study is let go of; stop it when that is asked for, and at once where another has taken it over."""
    count = 0
    while not ended.wait(_BEAT_S):
        if (other := _read_holder(folder)) not in (me, None):
            print(f"see-tune: {other} took {folder.root.name} over, as this process stood still", file=sys.stderr, flush=True)
            os._exit(1)  # every further write would be into another's study
        if _stop_file(folder).exists():
            _stop_file(folder).unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGTERM)
        count += 1
        with suppress(OSError):  # a full disk, a folder that was set aside
            _write_beat(folder, me, count)


def running_already(folder: StudyFolder, holder: Holder | None) -> StudyError:
    """The refusal of a second driver."""
    name, who = folder.root.name, holder or "another process"
    return StudyError(
        f"the study {name} is running already ({who}); look at it: {folder.home.command('status', name)}, "
        f"end it: {folder.home.command('stop', name)}, or choose another name with --name"
    )


def holder_of(folder: StudyFolder) -> Holder | None:
    """The process that runs the study now; None where nobody does, whatever a dead process has left."""
    return _read_holder(folder) if _is_locked(folder) else _alive_elsewhere(folder)


def _is_locked(folder: StudyFolder) -> bool:
    """Asked with a shared lock, for which the file need only be read: a disk may be read-only by now."""
    try:
        with folder.lock_file.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # absent, or not to be read; a file system without locks is refused where one is needed
        return False
    return False


def _alive_elsewhere(folder: StudyFolder) -> Holder | None:
    """The holder of another host whose lock cannot be seen from here, where its count is seen to go up."""
    holder, count = _read_holder(folder), _read_count(folder)
    if holder is None or holder.boot == _boot() or network_file_system(folder.root) is None:
        return None
    until = time.monotonic() + _STILL_S
    while time.monotonic() < until:
        if _read_count(folder) != count:
            return _read_holder(folder)
        time.sleep(_BEAT_S / 10)
    return None


def _boot() -> str:
    return _BOOT.read_text().strip() if _BOOT.is_file() else ""


def _holder_file(folder: StudyFolder) -> Path:
    return folder.lock_file.with_suffix(".holder")


def _stop_file(folder: StudyFolder) -> Path:
    return folder.lock_file.with_suffix(".stop")


def _write_beat(folder: StudyFolder, me: Holder, count: int) -> None:
    temporary = folder.lock_file.with_suffix(".tmp")
    temporary.write_text(json.dumps({"holder": asdict(me), "count": count}))
    temporary.replace(_holder_file(folder))


def _read_holder(folder: StudyFolder) -> Holder | None:
    try:
        return Holder(**json.loads(_holder_file(folder).read_text())["holder"])
    except (OSError, ValueError, TypeError, KeyError):  # gone, or of another version
        return None


def _read_count(folder: StudyFolder) -> int | None:
    try:
        return int(json.loads(_holder_file(folder).read_text())["count"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def ask_to_stop(folder: StudyFolder) -> Holder:
    """SIGTERM to the process that runs the study: its trials go back into the queue, and it ends.

    On another host, or in another container, it finds the wish in the study's folder within a few seconds.

    Raises: StudyError where nobody runs it.
    """
    name, holder = folder.root.name, holder_of(folder)
    if holder is None:
        raise StudyError(f"the study {name} is not running; how it stands: {folder.home.command('status', name)}")
    if (holder.host, holder.boot) == (socket.gethostname(), _boot()):
        os.kill(holder.pid, signal.SIGTERM)
    else:
        _stop_file(folder).touch()
    return holder


def wait_until_free(folder: StudyFolder, holder: Holder, poll_s: float = 0.2) -> None:
    """Return when `holder` runs the study no longer."""
    while holder_of(folder) == holder:
        time.sleep(poll_s)
