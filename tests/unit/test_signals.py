"""One signal that arrives twice at the same moment is one; what a finger presses twice is two."""

from __future__ import annotations

import time

import pytest

from see_tune.signals import Presses


def test_echo_is_told_from_a_second_press(monkeypatch: pytest.MonkeyPatch) -> None:
    presses, heard = Presses(), []
    for arrives_at in (10.0, 10.003, 10.15, 10.151, 12.0):
        monkeypatch.setattr(time, "monotonic", lambda now=arrives_at: now)
        heard.append(presses.is_echo())
    assert heard == [False, True, False, True, False]
