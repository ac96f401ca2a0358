"""What the faults are done to: the processes of a study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def processes_below() -> Callable[[int], list[int]]:
    """Every process below one, by the parent that the kernel names."""

    def find(pid: int) -> list[int]:
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            except OSError:  # it ended meanwhile
                continue
        found = [pid]
        for above in found:
            found += [child for child, parent in parents.items() if parent == above]
        return found[1:]

    return find
