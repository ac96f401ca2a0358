"""A durable queue between the driver and a tracking server that comes and goes.

The driver appends an event and goes on; one thread of its own delivers them in order. An appended event is in a sqlite
file before `append` returns, so it survives a SIGKILL of the process; a delivered one is deleted from the file. The file
therefore holds exactly what the server has yet to be told, and the next start of the same study tells it.

Delivery is at least once: a process killed between delivering and deleting delivers again. The callable must be
idempotent. It sorts failures into two kinds by what it raises:

    TrackingError        the server refused the event and would refuse it again: set aside with its error, counted, and
                         tried once more at the next start (a server that was upgraded, an artifact that is back)
    anything else        the server is away: tried again, less and less often, for as long as the process lives

Nothing but the standard library: the spool knows no MLflow.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from see_tune.errors import TrackingError

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 10.0
BATCH_EVENTS = 200

_SCHEMA = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA busy_timeout = 5000;
    CREATE TABLE IF NOT EXISTS events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, body TEXT NOT NULL, error TEXT
    );
    CREATE TABLE IF NOT EXISTS identity (value TEXT NOT NULL);
    UPDATE events SET error = NULL WHERE error IS NOT NULL;
"""


@dataclass(frozen=True)
class Event:
    """One thing to tell the server; `number` grows in the order of the appends."""

    number: int
    kind: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Refusal:
    """An event that the server refused, and what it said."""

    kind: str
    error: str


class Spool:
    """The queue of one study. Threads of the process may append at the same time; only one process may hold the file.

    file: the sqlite file, created with its folder if absent.
    first_retry_s, last_retry_s: the shortest and the longest pause after a failed delivery; it doubles in between.
    first_delivery_s: so long after `start` the first delivery is, unless somebody waits for it.
    on_away: told why, in the delivery thread, when deliveries begin to fail.

    Raises TrackingError where the file cannot be opened or written.
    """

    def __init__(
        self,
        file: Path,
        *,
        first_retry_s: float = FIRST_RETRY_S,
        last_retry_s: float = LAST_RETRY_S,
        first_delivery_s: float = 0.0,
        on_away: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._file = file
        self._first_retry_s = first_retry_s
        self._last_retry_s = last_retry_s
        self._first_delivery_s = first_delivery_s
        self._on_away = on_away
        self._changed = threading.Condition()  # guards everything below
        self._db = self._open()
        self._queued = int(self._db.execute("SELECT COUNT(*) FROM events").fetchone()[0])
        self._drains = 0
        self._closing = False
        self._away: str | None = None
        self._thread: threading.Thread | None = None
        self.identity = self._read_identity()

    def start(self, deliver: Callable[[Sequence[Event]], None]) -> None:
        """Deliver from now on, beginning with what an earlier process left.

        deliver: tells the server some events, oldest first; called from the delivery thread alone.
        """
        self._thread = threading.Thread(target=self._deliver_until_closed, args=(deliver,), name="see-tune spool", daemon=True)
        self._thread.start()

    def append(self, kind: str, body: Mapping[str, Any]) -> None:
        """Keep one event; returns as soon as it would survive a SIGKILL of this process (well under a millisecond).

        Raises TrackingError where the body is no JSON (NaN and infinities are none) or the file cannot be written.
        """
        try:
            text = json.dumps(body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TrackingError(
                f"cannot track {kind} {body!r}: {error}; finite numbers, strings, lists and mappings of them can be tracked"
            ) from error
        with self._changed:
            self._write("INSERT INTO events (kind, body) VALUES (?, ?)", [(kind, text)])
            self._queued += 1
            self._changed.notify_all()

    def undelivered(self) -> int:
        """How many events the server has yet to be told; refused ones are not among them."""
        return self._queued

    def refused(self) -> tuple[Refusal, ...]:
        """The events that the server refused in this session, oldest first."""
        with self._changed:
            rows = self._db.execute("SELECT kind, error FROM events WHERE error IS NOT NULL ORDER BY id").fetchall()
        return tuple(Refusal(kind, error) for kind, error in rows)

    def away(self) -> str | None:
        """Why the last delivery failed, or None where it did not."""
        return self._away

    def drain(self, timeout_s: float, *, away_s: float = math.inf) -> int:
        """Wait until everything is delivered, at most `timeout_s` seconds, at most `away_s` of them on end for a server that is
        away; returns how many events are left."""
        until = time.monotonic() + timeout_s
        with self._changed:
            self._drains += 1
            self._changed.notify_all()
            while self._queued and (left_s := until - time.monotonic()) > 0:
                if self._away is None:
                    self._changed.wait_for(lambda: not self._queued or self._away, left_s)
                elif not self._changed.wait_for(lambda: not self._queued or self._away is None, min(left_s, away_s)):
                    break
            self._drains -= 1
            return self._queued

    def close(self, timeout_s: float = 15.0) -> None:
        """Stop delivering after the delivery that is under way; what is left stays in the file for the next start."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._thread is None or not self._thread.is_alive():
            self._db.close()

    def _open(self) -> sqlite3.Connection:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._file, check_same_thread=False)
            connection.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise TrackingError(
                f"cannot open the tracking queue {self._file}: {error}; it must be a writable file on a local disk: "
                f"free some space or choose another --home"
            ) from error
        return connection

    def _read_identity(self) -> str:
        """A random name made with the file: a study of the same name in another home, or begun anew, has another one."""
        row = self._db.execute("SELECT value FROM identity").fetchone()
        if row is None:
            row = (uuid.uuid4().hex,)
            self._write("INSERT INTO identity (value) VALUES (?)", [row])
        return str(row[0])

    def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        try:
            with self._db:
                self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise TrackingError(
                f"cannot write the tracking queue {self._file}: {error}; free some space on its disk, then run the study again"
            ) from error

    def _deliver_until_closed(self, deliver: Callable[[Sequence[Event]], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._drains, self._first_delivery_s)
        pause_s = self._first_retry_s
        while events := self._next_events():
            try:
                self._deliver_or_set_aside(deliver, events)
            except Exception as error:  # whatever the server's absence looks like
                self._note_away(f"{type(error).__name__}: {error}")
                pause_s = self._pause(pause_s)
            else:
                self._note_away(None)
                pause_s = self._first_retry_s

    def _note_away(self, why: str | None) -> None:
        with self._changed:
            is_news = why is not None and self._away is None
            self._away = why
            self._changed.notify_all()
        if is_news:
            self._on_away(str(why))

    def _next_events(self) -> list[Event]:
        """The oldest events, waiting for one if need be; none when the spool is closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._queued)
            if self._closing:
                return []
            rows = self._db.execute(
                "SELECT id, kind, body FROM events WHERE error IS NULL ORDER BY id LIMIT ?", (BATCH_EVENTS,)
            ).fetchall()
        return [Event(number, kind, json.loads(body)) for number, kind, body in rows]

    def _deliver_or_set_aside(self, deliver: Callable[[Sequence[Event]], None], events: Sequence[Event]) -> None:
        try:
            deliver(events)
        except TrackingError as error:
            if len(events) == 1:
                self._settle("UPDATE events SET error = ? WHERE id = ?", [(str(error), events[0].number)])
            else:  # one of them is refused: find out which
                for event in events:
                    self._deliver_or_set_aside(deliver, [event])
        else:
            self._settle("DELETE FROM events WHERE id = ?", [(event.number,) for event in events])

    def _settle(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        with self._changed:
            self._write(statement, rows)
            self._queued -= len(rows)
            self._changed.notify_all()

    def _pause(self, pause_s: float) -> float:
        """Wait before the next attempt, and return the pause after that; while a `drain` waits, pauses are the shortest."""
        with self._changed:
            if self._drains:
                self._changed.wait_for(lambda: self._closing, self._first_retry_s)
                return self._first_retry_s
            self._changed.wait_for(lambda: self._closing or self._drains, pause_s)
            return min(2 * pause_s, self._last_retry_s)
