"""A study that its environment kept from every answer: once the cause is mended, the same command gives it one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def see_tune(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "see_tune.cli.app", *arguments]
    environment = {**os.environ, "SEE_TUNE_HOME": str(folder / "home")}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder, env=environment)


@contextmanager
def unreadable_pictures(folder: Path) -> Iterator[None]:
    """The rendered glyphs are cut short, as by a disk that was full, so that every trial fails when it opens them."""
    (pixels,) = folder.glob("home/cache/glyphs-*/pixels.npy")
    whole = pixels.read_bytes()
    pixels.write_bytes(whole[:1000])
    yield
    pixels.write_bytes(whole)


def test_what_failed_is_tried_again_by_the_same_command(tmp_path: Path, small_study: str) -> None:
    (tmp_path / "small.yaml").write_text(small_study)
    assert see_tune(tmp_path, "datasets", "check", "glyphs").returncode == 0
    with unreadable_pictures(tmp_path):
        failed = see_tune(tmp_path, "run", "small.yaml")
        assert failed.returncode == 1, failed.stderr
        assert "no trial of small completed: 0 pruned, 2 failed" in failed.stderr
        assert "run the same command again" in failed.stderr
        assert "--fresh" in failed.stderr
        assert json.loads(see_tune(tmp_path, "status", "small", "--json").stdout)["state"] == "failed"

    searched = see_tune(tmp_path, "run", "small.yaml", "--until", "search")
    assert searched.returncode == 0, searched.stderr
    assert "tried again, after the last session gave up: t000, t001" in searched.stdout

    with unreadable_pictures(tmp_path):
        untested = see_tune(tmp_path, "run", "small.yaml")
        assert untested.returncode == 1, untested.stdout
        assert "none of its final runs completed" in untested.stderr

    done = see_tune(tmp_path, "run", "small.yaml", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["trials"], answer["complete"], answer["failures"]) == ("done", 2, 2, {})
    assert answer["champion"]
