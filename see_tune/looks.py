"""How often the test classes of a dataset were looked at from this home: one line a measurement, never taken back.

The best of many test numbers is partly luck, also where each was measured honestly; a reader can only allow for that who knows
how many there were. Final runs count, each epoch of a study with ``protocol: paper``, and `see-tune evaluate`.

A line is one look as JSON, appended in one write, so that studies side by side need no lock. A training that goes on from a
checkpoint tells its epochs again: the same line twice is one look. A study that was set aside leaves a line of its own, since
what looks under its name from there on is another one.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from see_tune.errors import UserError
from see_tune.home import Home
from see_tune.results import Looks


@dataclass(frozen=True)
class Look:
    """One measurement on test classes.

    fingerprint: of the dataset. study: whose, or nothing where a person asked. model: the lineage, or what the person named.
    timestamp: Unix time in seconds, of the epoch's end.
    """

    fingerprint: str
    study: str
    model: str
    epoch: int
    timestamp: float


def count_look(home: Home, look: Look) -> None:
    """Add one look to the home's.

    Raises:
        UserError: it cannot be written down.
    """
    _append(home, asdict(look))


def count_set_aside(home: Home, study: str) -> None:
    """Let the next study of this name count as another one.

    Raises:
        UserError: it cannot be written down.
    """
    if home.looks_file.is_file():
        _append(home, {"set_aside": study})


def _append(home: Home, said: dict[str, Any]) -> None:
    line = (json.dumps(said) + "\n").encode()
    try:
        home.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(home.looks_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UserError(
            f"{home.looks_file} cannot be written ({error.strerror or error}), and a look at test classes must be counted there; "
            f"free space, allow writing, or choose another home with --home DIR or SEE_TUNE_HOME"
        ) from error


def read_looks(home: Home, fingerprint: str) -> Looks:
    """The looks so far at the test classes of one dataset."""
    try:
        lines = home.looks_file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    aside: Counter[str] = Counter()
    looks: dict[Look, tuple[str, int]] = {}  # a look -> whose: the name, and how many of that name were set aside before
    for line in lines:
        said = _parsed(line)
        if isinstance(said, str):
            aside[said] += 1
        elif said is not None and said.fingerprint == fingerprint:
            looks.setdefault(said, (said.study, aside[said.study]))
    studies = [study for study in looks.values() if study[0]]
    return Looks(times=len(studies), studies=len(set(studies)), by_hand=len(looks) - len(studies), fingerprint=fingerprint)


def _parsed(line: str) -> Look | str | None:
    """A look, or the name of a study that was set aside; None for a line that a full disk cut."""
    try:
        said = json.loads(line)
        return str(said["set_aside"]) if "set_aside" in said else Look(**said)
    except (ValueError, TypeError):
        return None
