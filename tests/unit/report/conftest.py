"""Studies as they lie in a home folder, run in-process through the real ledgers and the real protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import optuna
import pytest
from optuna.pruners import NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler
from optuna.storages import InMemoryStorage

from see_tune.home import Home
from see_tune.report.record import read_record
from see_tune.results import EpochResult, TrialResult
from see_tune.search.ledger import Ledger
from see_tune.search.protocol import Protocol
from see_tune.search.rows import Row
from see_tune.spec.load import dump_study, parse_study
from see_tune.spec.models import StudySpec, TrialSpec

STUDY = """
study: small
dataset: {name: glyphs, classes: 40}
train: {epochs: 4}
search:
  see.n_aug: {int: [1, 15], log: true}
  see.lambda: {float: [0.0, 2.0]}
pruner: {name: asha, grace_epochs: 2, force: true}
budget: {trials: 14}
validation: {rerank_top: 2, rerank_folds: 2}
final: {seeds: 3}
"""

Value = Callable[[TrialSpec, int], float]


def recall(spec: TrialSpec, epoch: int) -> float:
    """Best at lambda 1; SEE off does like lambda 0; each seed and fold adds a little."""
    weight = spec.see.lambda_ if spec.see.enabled else 0.0
    return 0.5 + 0.1 * (1 - (weight - 1) ** 2) + 0.01 * epoch + 0.001 * (spec.seed % 7) + 0.0001 * spec.split.fold


def write_study(
    home: Home,
    text: str = STUDY,
    *,
    value: Value = recall,
    cause: str = "",
    killed_after: int | None = None,
    resumed: bool = False,
) -> None:
    """Run a study as its driver would, one row at a time, and leave it in its folder.

    cause: every row fails with it.
    killed_after: so many epochs in all; `resumed`: and then run to its end.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    loaded = parse_study(text, "study.yaml")
    spec = loaded.spec
    searched, planned = (
        optuna.create_study(storage=InMemoryStorage(), study_name=name, direction="maximize") for name in _names(spec.study)
    )
    planned.pruner = NopPruner()
    searched.sampler = RandomSampler(seed=0)
    searched.pruner = SuccessiveHalvingPruner(min_resource=2, reduction_factor=3) if spec.pruner.name == "asha" else NopPruner()
    search, final = Ledger(searched, loaded.space, sampler="random"), Ledger(planned)
    _drive(spec, search, final, value, cause, killed_after)
    if resumed:
        search.requeue_interrupted()
        final.requeue_interrupted()
        _drive(spec, search, final, value, cause, None)
    folder = home.study(spec.study).make()
    folder.spec_file.write_text(dump_study(spec))
    for study in (searched, planned):
        optuna.copy_study(
            from_study_name=study.study_name, from_storage=study._storage, to_storage=f"sqlite:///{folder.optuna_db}"
        )


def _names(study: str) -> tuple[str, str]:
    return study, f"{study}/final"


def _drive(spec: StudySpec, search: Ledger, final: Ledger, value: Value, cause: str, killed_after: int | None) -> None:
    left = 10**6 if killed_after is None else killed_after
    until: Literal["search", "final"] = "final" if spec.final else "search"
    for phase in Protocol(spec, search, final, until=until).phases():
        for stream in phase.streams:
            while stream.may_start() and (row := stream.ledger.ask()):
                trial = stream.make_spec(row)
                result = _train(row, trial, stream.ledger.report, value, min(left, trial.last_epoch))
                left -= trial.last_epoch
                if left < 0:
                    return
                stream.ledger.tell(row.lineage, TrialResult("failed", cause=cause, traceback="Traceback") if cause else result)


def _train(row: Row, spec: TrialSpec, report: Callable[[str, int, float], bool], value: Value, epochs: int) -> TrialResult:
    history: list[EpochResult] = []
    best, status = spec.objective_metric, "complete"
    for epoch in range(1, epochs + 1):
        reached = value(spec, epoch)
        measured = spec.split.kind != "test" or epoch == spec.last_epoch
        metrics = {best: reached, best.replace("at_1", "at_2"): min(1.0, reached + 0.1)} if measured else {}
        history.append(EpochResult(epoch, {"train/loss": 1.0, **metrics}, time.time(), 2.0))
        if measured and report(row.lineage, epoch, reached):
            status = "pruned"
            break
    values = {result.epoch: result.metrics[best] for result in history if best in result.metrics}
    top = max(values, key=values.__getitem__, default=None)
    facts = {"fingerprint": "feed", "split": "beef", "seed": str(spec.seed), "torch": "2.0"}
    return TrialResult(status, tuple(history), top, values.get(top or 0), device="here:cpu", facts=facts)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def finished_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose study `small` has run to its end."""
    home = Home(tmp_path_factory.mktemp("finished"))
    write_study(home)
    result = replace(read_record("small", home).result, status="done", champion_note="a test's")
    home.study("small").summary_file.write_text(result.to_json())
    return home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def write() -> Callable[..., None]:
    """`write_study`, for studies of a test's own."""
    return write_study


@pytest.fixture
def study_text() -> str:
    return STUDY
