"""What a driver leaves under the temporary folder is swept up once it is dead, and never before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from see_tune.search.engine_folder import engine_folder, sweep_engine_folders

DRIVER = """
import tempfile, time
from see_tune.search.engine_folder import engine_folder
with engine_folder() as folder:
    (folder / "socket").touch()
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def drive() -> tuple[subprocess.Popen[str], Path]:
    """A driver of another process, and its folder, which is older than a minute."""
    process = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    os.utime(folder, (0, 0))
    return process, folder


def test_folder_of_a_killed_driver_is_swept_at_the_next_start() -> None:
    process, folder = drive()
    with process:
        sweep_engine_folders()
        assert (folder / "socket").is_file()  # it lives
        os.kill(process.pid, signal.SIGKILL)
    with engine_folder() as own:
        assert not folder.exists()
        assert own.is_dir()
    assert not own.exists()


def test_young_folder_and_folders_of_others_are_left_alone(temporary: Path) -> None:
    young, other = temporary / "see-tune-ray-7-new", temporary / "see-tune-model-old"
    for folder in (young, other):
        folder.mkdir()
    os.utime(other, (0, 0))
    sweep_engine_folders()
    assert young.is_dir()
    assert other.is_dir()
