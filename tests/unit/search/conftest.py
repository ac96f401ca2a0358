"""A study's road without Ray: the desk driven by an in-process trainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from see_tune.home import Home
from see_tune.results import EpochResult, TrialResult
from see_tune.search.desk import Desk, DeskListener, Work
from see_tune.search.generations import Carried, open_ledgers
from see_tune.search.ledger import Ledger
from see_tune.search.protocol import Protocol
from see_tune.spec.load import Loaded, parse_study
from see_tune.spec.models import TrialSpec

STUDY = """
study: small
dataset: {name: glyphs, classes: 40}
train: {epochs: 4}
search:
  see.n_aug: {int: [1, 15]}
  see.lambda: {float: [0.0, 2.0]}
budget: {trials: 6}
pruner: {grace_epochs: 2, force: true}
validation: {rerank_top: 2, rerank_folds: 2}
final: {seeds: 3}
"""


def fake_value(spec: TrialSpec, epoch: int) -> float:
    """Best at lambda 1; SEE off does like lambda 0; each seed and fold adds a little."""
    weight = spec.see.lambda_ if spec.see.enabled else 0.0
    return 0.5 + 0.1 * (1 - (weight - 1) ** 2) + 0.01 * epoch + 0.001 * (spec.seed % 7) + 0.0001 * spec.split.fold


@dataclass
class Recorder(DeskListener):
    """Keeps what happened at the desk."""

    phases: list[str] = field(default_factory=list)
    ended: list[tuple[str, TrialResult]] = field(default_factory=list)
    specs: dict[str, TrialSpec] = field(default_factory=dict)

    def on_phase(self, name: str) -> None:
        self.phases.append(name)

    def on_start(self, work: Work) -> None:
        self.specs[work.row.lineage] = work.spec

    def on_end(self, work: Work, result: TrialResult) -> None:
        self.ended.append((work.row.lineage, result))


EPOCH_S = 1.0


@dataclass
class Clock:
    """Time that passes while an epoch is trained, and not otherwise; takes the place of the module `time`."""

    now: float = 1_700_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@dataclass
class Bench:
    """One session: ledgers, protocol and desk over a folder."""

    loaded: Loaded
    search: Ledger
    final: Ledger
    protocol: Protocol
    desk: Desk
    recorder: Recorder
    carried: Carried
    known: int
    clock: Clock = field(default_factory=Clock)
    fails: dict[str, str] = field(default_factory=dict)  # start of a lineage -> the cause its trainer fails with

    def run(self, epochs: int | None = None) -> None:
        """Drive the desk as Ray would, one row at a time, at most `epochs` epochs in all (then: killed)."""
        left = epochs if epochs is not None else 10**6
        for number in range(1000):
            config = self.desk.take(f"ray-{number}")
            if config is None:
                break
            spec = TrialSpec.model_validate_json(config["spec"])
            cause = next((cause for start, cause in self.fails.items() if config["lineage"].startswith(start)), None)
            if cause:
                self.desk.receive(f"ray-{number}", {"outcome": TrialResult("failed", cause=cause).to_json()})
                self.desk.close(f"ray-{number}", lost=False)
                continue
            history: list[EpochResult] = []
            stopped = False
            for epoch in range(1, spec.last_epoch + 1):
                if left == 0:
                    return
                left -= 1
                self.clock.now += EPOCH_S
                value = fake_value(spec, epoch)
                metrics = {spec.objective_metric: value} if spec.split.kind != "test" or epoch == spec.last_epoch else {}
                history.append(EpochResult(epoch, {"train/loss": 1.0, **metrics}, self.clock.now, EPOCH_S))
                report = {"epoch_result": history[-1].to_json(), "where": "here:cpu"}
                if stopped := self.desk.receive(f"ray-{number}", report):
                    break
            if not stopped:
                values = [e.metrics[spec.objective_metric] for e in history if spec.objective_metric in e.metrics]
                outcome = TrialResult("complete", tuple(history), spec.last_epoch, max(values))
                self.desk.receive(f"ray-{number}", {"outcome": outcome.to_json()})
            self.desk.close(f"ray-{number}", lost=False)
        if self.desk.error:
            raise self.desk.error


@pytest.fixture(scope="session")
def study_text() -> str:
    return STUDY


@pytest.fixture(scope="session")
def build_clock() -> type[Clock]:
    return Clock


@pytest.fixture(scope="session")
def build_bench() -> Callable[..., Bench]:
    """Open a session of the study above in a home; each call is a new process, as it were."""

    def build(root: Path, text: str = STUDY, *, until: str = "final", extend: bool = True) -> Bench:
        loaded = parse_study(text, "study.yaml")
        home = Home(root)
        folder = home.study(loaded.spec.study).make()
        ledgers = open_ledgers(loaded, home)
        protocol = Protocol(
            loaded.spec,
            ledgers.search,
            ledgers.final,
            until="search" if until == "search" else "final",
            off=ledgers.off,
            baseline=ledgers.baseline,
            extend=extend,
        )
        recorder = Recorder()
        desk = Desk(protocol.phases(), slots=1, retries=0, listeners=[recorder], folder_of=folder.trial)
        return Bench(loaded, ledgers.search, ledgers.final, protocol, desk, recorder, ledgers.carried, ledgers.known)

    return build


@pytest.fixture
def open_bench(build_bench: Callable[..., Bench], tmp_path: Path) -> Callable[..., Bench]:
    """`build_bench` in this test's own home."""
    return partial(build_bench, tmp_path)
