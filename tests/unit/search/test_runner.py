"""Ray runs what the desk hands out: side by side, and nothing of it is left."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from see_tune.results import EpochResult, TrialResult
from see_tune.search.ledger import FinishedRow, open_search_ledger
from see_tune.search.runner import Resources, run, start_engine
from see_tune.search.searcher import Desk, Phase, Stream
from see_tune.spec.models import DatasetSpec, PrunerSpec, SamplerSpec, TrialSpec
from see_tune.spec.space import FloatRange, Parameter, Space

TRIALS = 8


def work_for_two_seconds(spec: TrialSpec, *, folder: Path, on_epoch: Callable[[EpochResult, Path | None], None]) -> TrialResult:
    """A trial that is shorter than the start of an actor, and says in which process it ran."""
    time.sleep(2)
    result = EpochResult(1, {"val/recall_at_1": 0.5}, time.time(), 2.0)
    on_epoch(result, folder)
    return TrialResult("complete", (result,), 1, 0.5, facts={"pid": str(os.getpid())})


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """A temporary folder of this test's own; short, as Ray's sockets want it."""
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        yield Path(folder)
        tempfile.tempdir = None


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, temporary: Path) -> tuple[FinishedRow, ...]:
    """Short trials in two slots of a real Ray."""
    folder = tmp_path_factory.mktemp("runner")
    space = Space((Parameter("see.lambda", FloatRange(0.0, 1.0)),), {})
    ledger = open_search_ledger(
        f"sqlite:///{folder}/optuna.db", "s", space, sampler=SamplerSpec(), pruner=PrunerSpec(name="none"), grace_epochs=1
    )
    trial = TrialSpec(dataset=DatasetSpec(name="glyphs"))
    stream = Stream(ledger, lambda row: trial, lambda: ledger.started() < TRIALS)
    desk = Desk(iter([Phase("search", [stream])]), slots=2, retries=0, listeners=[], folder_of=lambda lineage: folder / lineage)
    with start_engine(cpus=2, gpus=0, log_file=folder / "engine.log"):
        run(desk, work_for_two_seconds, Resources(1, 0, 2), results_folder=folder / "ray")
    return ledger.finished()


def test_every_row_ends_complete(rows: tuple[FinishedRow, ...]) -> None:
    assert [row.result.status for row in rows] == ["complete"] * TRIALS


def test_both_slots_work_although_trials_are_shorter_than_an_actors_start(rows: tuple[FinishedRow, ...]) -> None:
    trials_by_process = Counter(row.result.facts["pid"] for row in rows)
    assert len(trials_by_process) == 2, trials_by_process


def test_session_folder_is_swept_up(rows: tuple[FinishedRow, ...], temporary: Path) -> None:
    assert list(temporary.glob("see-tune-*")) == []
