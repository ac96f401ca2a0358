"""Ray runs what the desk hands out: side by side, and nothing of it is left."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
from ray.tune.execution import class_cache

from see_tune.results import EpochResult, TrialResult
from see_tune.search.desk import Desk, Phase, Stream
from see_tune.search.engine import Engine
from see_tune.search.guard import Quarantine
from see_tune.search.ledger import Ledger, open_search_ledger
from see_tune.search.rows import FinishedRow
from see_tune.search.runner import Resources, log_to, run
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
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary folder of this test's own; short, as Ray's sockets want it."""
    tmp_path_factory.getbasetemp()  # pytest's own folder is not to lie in it
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        yield Path(folder)
        tempfile.tempdir = None


def fail_on_the_second_device(
    spec: TrialSpec, *, folder: Path, on_epoch: Callable[[EpochResult, Path | None], None]
) -> TrialResult:
    """A trial on a machine one of whose (pretended) GPUs is broken; on the other one it waits for two failures there."""
    failures = folder.parent / "failures"
    failures.mkdir(exist_ok=True)
    if ray.get_gpu_ids() == [1]:
        if len(list(failures.iterdir())) >= 2:
            time.sleep(3)  # the other's success is taken in meanwhile
        (failures / folder.name).touch()
        return TrialResult("failed", cause="CUDA error: uncorrectable ECC error")
    waited_since = time.monotonic()
    while len(list(failures.iterdir())) < 2 and time.monotonic() - waited_since < 60:
        time.sleep(0.1)
    return TrialResult("complete", (), 1, 0.5)


@dataclass(frozen=True)
class Session:
    """What two studies left that ran in one Ray, one after the other."""

    rows: tuple[FinishedRow, ...]
    rows_beside_a_broken_device: tuple[FinishedRow, ...]
    quarantined: Mapping[str, str]
    engine: Mapping[int, str]  # its processes before the first row was handed out: pid -> command line


def open_desk(folder: Path) -> tuple[Ledger, Desk]:
    folder.mkdir()
    space = Space((Parameter("see.lambda", FloatRange(0.0, 1.0)),), {})
    ledger = open_search_ledger(
        f"sqlite:///{folder}/optuna.db", "s", space, sampler=SamplerSpec(), pruner=PrunerSpec(name="none"), grace_epochs=1
    )
    trial = TrialSpec(dataset=DatasetSpec(name="glyphs"))
    stream = Stream(ledger, lambda row: trial, lambda: ledger.started() < TRIALS)
    phases = iter([Phase("search", [stream])])
    return ledger, Desk(phases, slots=2, retries=0, listeners=[], folder_of=lambda lineage: folder / lineage)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, temporary: Path, processes_below: Callable[[int], list[int]]) -> Session:
    """Short trials in two slots of a real Ray; then some on two pretended GPUs, one of which is broken."""
    folder = tmp_path_factory.mktemp("runner")
    ledger, desk = open_desk(folder / "short")
    beside, other_desk = open_desk(folder / "broken")
    other_desk._listeners.append(Quarantine(2, other_desk, lambda note: None))
    with Engine(cpus=2, gpus=2) as engine, log_to(folder / "engine.log"):
        engine.wait(desk.give_up)
        ray.get(ray.remote(lambda: None).remote())  # the workers that Ray starts with itself are there
        processes = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in processes_below(os.getpid())}
        run(desk, work_for_two_seconds, Resources(1, 0, 2), results_folder=folder / "ray")
        run(other_desk, fail_on_the_second_device, Resources(1, 1, 2), results_folder=folder / "ray")
    return Session(ledger.finished(), beside.finished(), other_desk.quarantined, processes)


def test_engine_that_cannot_start_tells_whoever_waits_for_it(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**settings: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(ray, "init", refuse)
    with Engine(cpus=1, gpus=0) as engine, pytest.raises(OSError, match="no space left"):
        engine.wait(lambda error: None)


def test_engine_that_nobody_waited_for_leaves_nothing(temporary: Path, processes_below: Callable[[int], list[int]]) -> None:
    before = set(processes_below(os.getpid()))
    with Engine(cpus=1, gpus=0):
        pass
    assert set(processes_below(os.getpid())) <= before
    assert list(temporary.iterdir()) == []


@pytest.fixture
def rows(session: Session) -> tuple[FinishedRow, ...]:
    return session.rows


def test_every_row_ends_complete(rows: tuple[FinishedRow, ...]) -> None:
    assert [row.result.status for row in rows] == ["complete"] * TRIALS


def test_both_slots_work_although_trials_are_shorter_than_an_actors_start(rows: tuple[FinishedRow, ...]) -> None:
    trials_by_process = Counter(row.result.facts["pid"] for row in rows)
    assert len(trials_by_process) == 2, trials_by_process


def test_a_trial_takes_a_worker_that_is_there_already(session: Session) -> None:
    assert any(int(row.result.facts["pid"]) in session.engine for row in session.rows)


def test_engine_starts_nothing_that_one_machine_does_not_need(session: Session) -> None:
    started = " ".join(session.engine.values())
    assert "raylet" in started
    assert "monitor.py" not in started
    assert "dashboard.py" not in started


def test_tunes_own_environment_is_back_when_the_engine_is_gone(session: Session) -> None:
    """On a cluster the workers need it: their nodes' environments are their own."""
    assert "RAY_CHDIR_TO_TRIAL_DIR" in class_cache.ENV_VARS_TO_PROPAGATE


def test_engine_folder_is_swept_up(rows: tuple[FinishedRow, ...], temporary: Path) -> None:
    assert list(temporary.glob("see-tune-*")) == []


def test_broken_device_gets_no_more_rows_and_the_others_finish_the_study(session: Session) -> None:
    statuses = Counter(row.result.status for row in session.rows_beside_a_broken_device)
    assert statuses["complete"] + statuses["failed"] == TRIALS
    assert 2 <= statuses["failed"] <= 3  # a third was handed out before the second was taken in
    ((name, cause),) = session.quarantined.items()
    assert name.endswith(":1")
    assert "ECC" in cause
