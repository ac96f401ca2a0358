import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from see_tune.errors import TrackingError
from see_tune.tracking.spool import Event, Spool


class Server:
    """What the spool delivers to: it can be away, and it refuses events of the kind ``bad``."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.away = False
        self.attempts = 0

    def __call__(self, events: Sequence[Event]) -> None:
        self.attempts += 1
        if self.away:
            raise ConnectionError("nobody there")
        if any(event.kind == "bad" for event in events):
            raise TrackingError("400: no such thing")
        self.told += [event.body["n"] for event in events]


@pytest.fixture
def open_spool(tmp_path: Path) -> Iterator[Callable[..., Spool]]:
    spools: list[Spool] = []

    def open_one(server: Server | None = None, **retries: Any) -> Spool:
        spool = Spool(tmp_path / "spool.db", **{"first_retry_s": 0.01, "last_retry_s": 0.02, **retries})
        spools.append(spool)
        if server is not None:
            spool.start(server)
        return spool

    yield open_one
    for spool in spools:
        spool.close()


def test_events_are_delivered_in_the_order_of_their_appends(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    spool = open_spool(server)
    for n in range(500):
        spool.append("epoch", {"n": n})
    assert spool.drain(10) == 0
    assert server.told == list(range(500))


def test_first_delivery_waits_and_nobody_waits_for_it(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    spool = open_spool(server, first_delivery_s=60.0)
    spool.append("epoch", {"n": 0})
    time.sleep(0.2)
    assert server.attempts == 0
    assert spool.drain(10) == 0
    started = time.monotonic()
    spool.close()
    assert server.told == [0] and time.monotonic() - started < 5


def test_close_does_not_wait_for_the_first_delivery(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    spool = open_spool(server, first_delivery_s=60.0)
    spool.append("epoch", {"n": 0})
    started = time.monotonic()
    spool.close()
    assert server.told == [] and time.monotonic() - started < 5
    assert open_spool().undelivered() == 1


def test_the_next_start_delivers_what_is_left(open_spool: Callable[..., Spool]) -> None:
    unstarted = open_spool()
    unstarted.append("epoch", {"n": 1})
    unstarted.close()
    server = Server()
    spool = open_spool(server)
    assert spool.drain(10) == 0
    assert server.told == [1]


def test_delivered_events_are_not_delivered_again_by_the_next_start(open_spool: Callable[..., Spool]) -> None:
    first = open_spool(Server())
    first.append("epoch", {"n": 1})
    first.drain(10)
    first.close()
    server = Server()
    second = open_spool(server)
    second.append("epoch", {"n": 2})
    second.drain(10)
    assert server.told == [2]


def test_an_absent_server_is_tried_until_it_is_back(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    server.away = True
    spool = open_spool(server)
    spool.append("epoch", {"n": 1})
    assert spool.drain(0.3) == 1
    assert server.attempts > 2
    assert spool.away() == "ConnectionError: nobody there"
    server.away = False
    assert spool.drain(10) == 0
    assert server.told == [1]
    assert spool.away() is None


def test_the_pause_between_attempts_grows(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    server.away = True
    spool = open_spool(server, first_retry_s=0.02, last_retry_s=10)
    spool.append("epoch", {"n": 1})
    time.sleep(0.5)
    assert server.attempts < 8  # 0.02 + 0.04 + ... passes half a second at the fifth


def test_drain_ends_a_long_pause_at_once(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    server.away = True
    spool = open_spool(server, first_retry_s=0.05, last_retry_s=60)
    spool.append("epoch", {"n": 1})
    while server.attempts < 6:  # the next attempt is 1.6 seconds away
        time.sleep(0.01)
    server.away = False
    assert spool.drain(1.2) == 0


def test_drain_gives_a_server_that_is_away_less_time(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    server.away = True
    spool = open_spool(server, first_delivery_s=60)
    spool.append("epoch", {"n": 1})
    started = time.monotonic()
    assert spool.drain(30, away_s=0.2) == 1
    assert time.monotonic() - started < 10
    threading.Timer(0.3, lambda: setattr(server, "away", False)).start()
    assert spool.drain(30, away_s=20) == 0


def test_a_server_that_goes_away_is_told_of_once_each_time(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    told: list[str] = []
    spool = open_spool(server, on_away=told.append)
    for n in range(3):
        server.away = n > 0
        spool.append("epoch", {"n": n})
        assert (spool.drain(0.3) > 0) == server.away
        server.away = False
        assert spool.drain(10) == 0
    assert told == ["ConnectionError: nobody there"] * 2


def test_a_server_that_hangs_does_not_hold_the_driver(open_spool: Callable[..., Spool]) -> None:
    answered = threading.Event()
    spool = open_spool(lambda events: answered.wait(30))
    spool.append("epoch", {"n": 0})
    seconds = []
    for n in range(1, 200):
        start = time.perf_counter()
        spool.append("epoch", {"n": n})
        seconds.append(time.perf_counter() - start)
    answered.set()
    assert median(seconds) < 0.002


def test_a_refused_event_does_not_hold_back_the_others(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    server.away = True
    spool = open_spool(server)
    for n, kind in enumerate(["epoch", "bad", "epoch"]):
        spool.append(kind, {"n": n})
    server.away = False
    assert spool.drain(10) == 0
    assert server.told == [0, 2]
    assert [(refusal.kind, refusal.error) for refusal in spool.refused()] == [("bad", "400: no such thing")]


def test_a_refused_event_is_tried_once_more_by_the_next_start(open_spool: Callable[..., Spool]) -> None:
    first = open_spool(Server())
    first.append("bad", {"n": 1})
    first.drain(10)
    first.close()
    told: list[str] = []
    second = open_spool(lambda events: told.extend(event.kind for event in events))
    assert second.drain(10) == 0
    assert told == ["bad"]
    assert second.refused() == ()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Path()])
def test_what_is_no_json_is_refused_before_it_is_kept(open_spool: Callable[..., Spool], value: object) -> None:
    spool = open_spool()
    with pytest.raises(TrackingError, match="cannot track epoch"):
        spool.append("epoch", {"n": value})
    assert spool.undelivered() == 0


def test_threads_that_append_together_lose_nothing(open_spool: Callable[..., Spool]) -> None:
    server = Server()
    spool = open_spool(server)

    def append_all(offset: int) -> None:
        for n in range(100):
            spool.append("epoch", {"n": offset + n})

    threads = [threading.Thread(target=append_all, args=(1000 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spool.drain(10) == 0
    assert sorted(server.told) == sorted(1000 * t + n for t in range(4) for n in range(100))


def test_a_file_keeps_its_identity_and_a_new_one_has_another(open_spool: Callable[..., Spool], tmp_path: Path) -> None:
    identity = open_spool().identity
    other = Spool(tmp_path / "other.db")
    assert open_spool().identity == identity != other.identity
    other.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match=r"file/spool\.db"):
        Spool(tmp_path / "file" / "spool.db")


APPENDER = """
import sys, time
from pathlib import Path
from see_tune.tracking.spool import Spool
spool = Spool(Path(sys.argv[1]))
for n in range(10**6):
    spool.append("epoch", {"n": n})
    print(n, flush=True)
"""


def test_every_appended_event_survives_a_sigkill(open_spool: Callable[..., Spool], tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-c", APPENDER, str(tmp_path / "spool.db")], stdout=subprocess.PIPE)
    assert driver.stdout is not None
    appended = [driver.stdout.readline() for _ in range(50)]
    os.kill(driver.pid, signal.SIGKILL)
    appended += driver.stdout.read().splitlines(keepends=True)
    driver.stdout.close()
    driver.wait()
    last = max(int(line) for line in appended if line.endswith(b"\n"))
    server = Server()
    assert open_spool(server).drain(20) == 0
    assert server.told[: last + 1] == list(range(last + 1))
    assert len(server.told) <= last + 2  # at most one was kept and not yet said
