"""A `see-tune run` that trains for longer than any test, in a process of its own that can be ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest

STUDY = """
study: ended
dataset: {name: glyphs, classes: 40}
model: {embedding_dim: 12}
train: {epochs: 400}  # longer than any of these tests
search:
  see.n_aug: {int: [1, 11]}
  see.lambda: {float: [0.0, 1.0]}
budget: {trials: 2}
pruner: {name: none}
final: none
"""
CONTINUES = "see-tune: interrupted; the same command continues\n"
START_S = 120.0


class Driver:
    """`see-tune run` in a process group of its own."""

    def __init__(self, folder: Path, *more: str, **how: Any) -> None:
        (folder / "ended.yaml").write_text(STUDY)
        (folder / "tmp").mkdir(exist_ok=True)
        self.home, self.temporary = folder / "home", folder / "tmp"
        command = [sys.executable, "-m", "see_tune.cli.app", "run", "ended.yaml", "--home", str(self.home), *more]
        environment = {**os.environ, "TMPDIR": str(self.temporary), "MPLBACKEND": "agg"}
        self._started_at = time.time()
        self.process = subprocess.Popen(command, text=True, cwd=folder, env=environment, **how)

    def wait_until(self, happened: Callable[[], Any]) -> None:
        until = time.monotonic() + START_S
        while not happened():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)

    def ray_starts(self) -> bool:
        return any(self.temporary.glob("see-tune-ray-*/session_*"))

    def trains(self) -> bool:
        """Whether a checkpoint has been written since it was started."""
        return any(file.stat().st_mtime > self._started_at for file in self.home.glob("studies/ended/trials/*/*.pt"))

    def rows(self) -> list[str]:
        study = optuna.load_study(study_name="ended", storage=f"sqlite:///{self.home}/studies/ended/optuna.db")
        return [trial.state.name for trial in study.trials if "superseded" not in trial.user_attrs]


@contextmanager
def in_a_group(folder: Path, *more: str) -> Iterator[Driver]:
    driver = Driver(folder, *more, process_group=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with driver.process:
        try:
            yield driver
        finally:
            driver.process.kill()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, as Ray's sockets want it."""
    with tempfile.TemporaryDirectory(prefix="ended-") as made:
        yield Path(made)
