"""The temporary folder of a local Ray: its sockets want a short path, and a driver that is killed leaves it behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

_PREFIX = "see-tune-ray-"
_LOCK = "owner.lock"
_YOUNG_S = 60.0  # its owner may not have locked it yet


@contextmanager
def engine_folder() -> Iterator[Path]:
    """A new folder under the system's temporary one, removed at the end; those of dead drivers are swept first.

    Whether a driver lives is told by a lock that dies with it: its process id may be another's by now, or a container's own.
    """
    sweep_engine_folders()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = filelock.FileLock(folder / _LOCK)
    try:
        with lock:
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_engine_folders() -> None:
    """Remove what killed drivers of this user have left; whatever cannot be removed is left alone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            status = folder.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG_S and folder.is_dir():
                with filelock.FileLock(folder / _LOCK, timeout=0, is_singleton=False):
                    shutil.rmtree(folder, ignore_errors=True)
        except (OSError, filelock.Timeout):
            continue
