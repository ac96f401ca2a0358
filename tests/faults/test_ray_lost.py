"""A process of Ray's own ends in the middle, as the out-of-memory killer ends it: the study ends in words, and continues."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import in_a_group


@pytest.mark.parametrize(
    ("victim", "named", "put_back"),
    [
        ("raylet/raylet", "raylet", True),
        ("ray::DashboardAgent", "raylet", True),  # which ends with its agent, after the workers
        ("gcs/gcs_server", "gcs_server", False),  # the driver has to end where it is
    ],
)
def test_study_whose_ray_ends_stops_at_once_and_is_continued_by_the_same_command(
    victim: str, named: str, put_back: bool, folder: Path, processes_below: Callable[[int], list[int]]
) -> None:
    with in_a_group(folder, "--set", "failure.retries=0") as driver:  # the loss of Ray is no loss of a worker
        driver.wait_until(driver.trains)
        below = processes_below(driver.process.pid)
        os.kill(next(pid for pid in below if victim in _command(pid)), signal.SIGKILL)
        _, errors = driver.process.communicate(timeout=50)
        assert driver.process.returncode == 130
        assert errors.startswith(f"see-tune: Ray has ended in the middle (its {named}: killed, or out of memory?)")
        assert errors.endswith("the same command continues\n")
        assert errors.count("\n") == 1
        assert [pid for pid in below if Path(f"/proc/{pid}/exe").exists()] == []
        assert list(folder.glob("tmp/*")) == []
        if put_back:
            assert set(driver.rows()) == {"WAITING"}

    with in_a_group(folder) as again:
        again.wait_until(again.trains)
        os.kill(again.process.pid, signal.SIGINT)
        again.process.communicate(timeout=60)
        assert again.process.returncode == 130
        assert set(again.rows()) == {"WAITING"}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it ended meanwhile
        return ""
