"""SIGTERM and SIGHUP as programs send them: to a process group, to every process of a job, when a terminal closes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.conftest import CONTINUES, Driver, in_a_group


def send_as_timeout_does(driver: Driver) -> None:
    """To the process, and at the same moment to its group."""
    os.kill(driver.process.pid, signal.SIGTERM)
    os.killpg(driver.process.pid, signal.SIGTERM)


def test_sigterm_to_the_group_stops_a_study_at_every_moment(folder: Path, processes_below: Callable[[int], list[int]]) -> None:
    """While it imports, while Ray starts beside that, while it trains; to its group, and to every process of it."""
    with in_a_group(folder) as importing:
        time.sleep(1.5)
        send_as_timeout_does(importing)
        assert importing.process.communicate(timeout=60)[1] == CONTINUES
        assert importing.process.returncode == 130

    with in_a_group(folder) as starting:
        starting.wait_until(starting.ray_starts)
        send_as_timeout_does(starting)
        below = processes_below(starting.process.pid)
        assert starting.process.communicate(timeout=100)[1] == CONTINUES
        assert starting.process.returncode == 130
        assert [pid for pid in below if Path(f"/proc/{pid}/exe").exists()] == []
        assert list(folder.glob("tmp/see-tune-ray-*")) == []

    with in_a_group(folder) as training:
        training.wait_until(training.trains)
        below = processes_below(training.process.pid)
        assert len(below) >= 3
        for pid in (*below, training.process.pid):
            os.kill(pid, signal.SIGTERM)
        output, errors = training.process.communicate(timeout=100)
        assert (training.process.returncode, errors) == (130, CONTINUES)
        assert "stopping: running trials go back into the queue" in output
        assert "t000 interrupted" in output
        assert training.rows() == ["WAITING"]
        assert [pid for pid in below if Path(f"/proc/{pid}/exe").exists()] == []
        assert list(folder.glob("tmp/see-tune-ray-*")) == []


def signalled_import(folder: Path, signals: str, main: str) -> subprocess.CompletedProcess[str]:
    """A command that imports a module while `signals` are sent, and then does `main`."""
    (folder / "slow.py").write_text(
        "import os, signal, time\n"
        "class Descriptor:\n"
        "    def __set_name__(self, owner, name):\n"
        f"        for number in ({signals}):\n"
        "            os.kill(os.getpid(), number)\n"
        "            time.sleep(0.2)\n"
        "class Holder:\n"
        "    held = Descriptor()\n"
        "imported = True\n"
    )
    driver = f"import time\nfrom see_tune.cli import app\ndef main():\n{main}\napp.main = main\napp.run_from_shell()\n"
    paths = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", driver]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=environment)


def test_signal_inside_an_import_waits_for_its_end(tmp_path: Path) -> None:
    """Raised there it comes out as a RuntimeError of `__set_name__`, or aborts C++ that calls Python."""
    main = "    import slow\n    print(slow.imported, flush=True)\n    time.sleep(60)"
    done = signalled_import(tmp_path, "signal.SIGTERM,", main)
    assert (done.returncode, done.stdout, done.stderr) == (130, "True\n", CONTINUES)


def test_ctrl_c_twice_inside_an_import_is_twice_after_it(tmp_path: Path) -> None:
    main = (
        "    try:\n"
        "        import slow\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n"
        "        print('once', flush=True)\n"
        "        time.sleep(60)"
    )
    done = signalled_import(tmp_path, "signal.SIGINT, signal.SIGINT", main)
    assert (done.returncode, done.stdout, done.stderr) == (130, "once\n", CONTINUES)


def test_ctrl_c_twice_while_ray_starts_ends_at_once_and_leaves_nothing(
    folder: Path, processes_below: Callable[[int], list[int]]
) -> None:
    with in_a_group(folder) as starting:
        starting.wait_until(starting.ray_starts)
        for _ in range(2):
            os.killpg(starting.process.pid, signal.SIGINT)
            time.sleep(1)
        below = processes_below(starting.process.pid)
        _, errors = starting.process.communicate(timeout=60)
        assert starting.process.returncode == 130
        assert errors == CONTINUES
        assert [pid for pid in below if Path(f"/proc/{pid}/exe").exists()] == []
        assert list(folder.glob("tmp/*")) == []


def test_closed_terminal_stops_a_study(folder: Path, processes_below: Callable[[int], list[int]]) -> None:
    ours, its = pty.openpty()
    driver = Driver(folder, start_new_session=True, stdin=its, stdout=its, stderr=its, preexec_fn=_take_terminal)
    os.close(its)
    try:
        driver.wait_until(driver.trains)
        below = processes_below(driver.process.pid)
        os.close(ours)  # the kernel sends SIGHUP, and nothing can be written any more
        assert driver.process.wait(timeout=100) == 130
    finally:
        driver.process.kill()
    assert json.loads((driver.home / "studies/ended/summary.json").read_text())["status"] == "interrupted"
    assert driver.rows() == ["WAITING"]
    assert [pid for pid in below if Path(f"/proc/{pid}/exe").exists()] == []


def _take_terminal() -> None:
    """The child's standard input becomes the terminal that its session hangs on, whose end it hears, also below nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
