"""Signals as people and programs send them."""

from __future__ import annotations

import math
import time

_ECHO_S = 0.05  # no finger presses twice so fast


class Presses:
    """Tells a signal from its echo: `timeout -s INT` sends one to a process and at the same moment to its group."""

    def __init__(self) -> None:
        self._last_at = -math.inf

    def is_echo(self) -> bool:
        """Whether the signal that arrives now is the one before it once more; to be asked once for each that arrives."""
        last_at, self._last_at = self._last_at, time.monotonic()
        return self._last_at - last_at < _ECHO_S
