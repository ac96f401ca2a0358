"""A finished study."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One study run to its end, for all tests that look at what a finished study leaves."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "small.yaml").write_text(SMALL)
    command = [sys.executable, "-m", "see_tune.cli.app", "run", "small.yaml", "--home", "home"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "home"
