"""A finished study."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, small_study: str) -> Path:
    """One study run to its end, for all tests that look at what a finished study leaves."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "small.yaml").write_text(small_study)
    command = [sys.executable, "-m", "see_tune.cli.app", "run", "small.yaml", "--home", "home"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "home"
