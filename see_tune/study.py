"""A study from its YAML to its champion: the rooms put together.

    load -> preflight -> lock -> [search -> re-rank -> final]  (Ray, the ledgers, the tracker, the board)
         -> answer -> registration -> summary.json

Killed anywhere, the same call goes on from the ledgers and the checkpoints. Nothing is decided here: which rows run is
protocol.py's, how a row runs is the trainer's, who is champion is the registry's.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import filelock

from see_tune.checks import DatasetFacts, count_gpus, preflight
from see_tune.errors import StudyError, StudyFailedError
from see_tune.home import Home, StudyFolder, find_home
from see_tune.model_folder import write_model_folder
from see_tune.report.summary import describe_values, study_result
from see_tune.results import EpochResult, StudyResult, TrialResult
from see_tune.search.board import Board, Plan
from see_tune.search.ledger import Ledger, open_final_ledger, open_search_ledger
from see_tune.search.protocol import Candidate, Protocol, final_lineage, row_title
from see_tune.search.runner import Resources, run, start_engine
from see_tune.search.searcher import Desk, DeskListener, Work
from see_tune.spec.keys import flat
from see_tune.spec.load import (
    Loaded,
    differences,
    dump_study,
    grace_epochs,
    identity_differences,
    load_study,
    parse_study,
    trial_values,
)
from see_tune.spec.models import StudySpec
from see_tune.tracking.mlflow_tracker import Tracker
from see_tune.tracking.registry import Candidate as ChampionCandidate
from see_tune.training.trainer import load_trained, train

Until = Literal["search", "final"]

_DELIVERY_S = 60.0
_FAILED_IN_A_ROW = 5
_SHARE_CORES = 4


class Watcher(DeskListener):
    """Someone who looks on: the terminal, a test. Every method may be left as it is."""

    def decoding(self, done: int, total: int) -> None:
        """Images are decoded once before the first trial, so that a broken one is found now."""

    def begin(self, spec: StudySpec, board: Board, folder: StudyFolder) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


def run_study(
    file: str | Path,
    *,
    home: str | Path | None = None,
    overrides: Sequence[str] = (),
    until: Until = "final",
    watcher: Watcher | None = None,
) -> StudyResult:
    """Run the study of a YAML file, or continue it, and return its answer.

    file: a study's YAML (``search_spaces/cars.yaml``).
    home: the folder for everything written; default SEE_TUNE_HOME, then ``./runs``.
    overrides: ``key=value`` assignments over the file, as ``--set``.
    until: "search" ends before the final phase.
    watcher: told of every row and epoch.

    Raises:
        SpecError, DatasetError, WeightsError, StudyError: the user's input is wrong; nothing was started.
        StudyFailedError: no trial completed.
    """
    loaded = load_study(Path(file), overrides=overrides)
    return run_loaded(loaded, find_home(Path(home) if home else None), until=until, watcher=watcher or Watcher())


def run_loaded(loaded: Loaded, home: Home, *, until: Until, watcher: Watcher) -> StudyResult:
    """`run_study` for a study that has been loaded already."""
    folder = home.study(loaded.spec.study)
    _refuse_changed(loaded.spec, folder)
    if (stored := stored_result(folder)) and _answers(stored, loaded.spec, until):
        watcher.note(f"{stored.study} is finished: {stored.trials} trials. More of the same search: --trials {2 * stored.trials}")
        return stored
    facts = preflight(loaded.spec, trial_values(loaded.spec), home, progress=watcher.decoding)
    for note in facts.notes:
        watcher.note(f"note: {note}")
    folder.make()
    with _only_one(folder):
        folder.spec_file.write_text(dump_study(loaded.spec))
        return _Run(loaded, home, folder, facts, until, watcher).run()


class _Run:
    """One session of a study: its ledgers, its tracker, and the desk between them and Ray."""

    def __init__(
        self, loaded: Loaded, home: Home, folder: StudyFolder, facts: DatasetFacts, until: Until, watcher: Watcher
    ) -> None:
        self.spec = loaded.spec
        self.home = home
        self.folder = folder
        self.facts = facts
        self.watcher = watcher
        self.started_at = time.time()
        self.search, self.final = _open_ledgers(loaded, folder)
        self.protocol = Protocol(loaded.spec, self.search, self.final, until=until)
        self.resources = plan_resources(loaded.spec)
        self.board = _opened_board(self.spec, self.protocol, self.search, self.final, self.resources.slots)

    def run(self) -> StudyResult:
        tracker = Tracker(self.home, study=self.spec.study, dataset=self.spec.dataset.name, uri=self.spec.tracking.uri)
        try:
            tracker.start_study(params=_study_params(self.spec), tags=self._tags(), started_at=self.started_at)
            tracker.log_artifact(self.folder.spec_file)
            desk = self._run_rows(tracker)
            return self._conclude(tracker, interrupted=desk.stopping)
        finally:
            tracker.close()

    def _run_rows(self, tracker: Tracker) -> Desk:
        guard = _FailureGuard()
        listeners = [_TrackingListener(tracker, self.spec, self._tags()), self.board, guard, self.watcher]
        desk = Desk(self.protocol.phases(), slots=self.resources.slots, listeners=listeners, folder_of=self.folder.trial)
        guard.desk = desk
        self.watcher.begin(self.spec, self.board, self.folder)
        try:
            with (
                _stops_on_signals(desk, self.watcher),
                start_engine(cpus=_cpu_count(), gpus=count_gpus(), log_file=self.folder.engine_log),
            ):
                trial = partial(train, home=self.home, threads=self.resources.cpus)
                run(desk, trial, self.resources, retries=self.spec.failure.retries, results_folder=self.folder.ray_results)
        finally:
            self.watcher.end()
        if guard.verdict:
            raise StudyFailedError(guard.verdict)
        return desk

    def _conclude(self, tracker: Tracker, *, interrupted: bool) -> StudyResult:
        result = self._result("interrupted" if interrupted else "done")
        if not interrupted and result.see is None:
            tracker.end_study(status="failed", ended_at=time.time())
            tracker.drain(_DELIVERY_S)
            raise StudyFailedError(_no_answer(result))
        lineage = None if interrupted else self._register(tracker)
        tracker.log_study_metrics(_answer_metrics(result))
        tracker.end_study(status="interrupted" if interrupted else "complete", ended_at=time.time())
        undelivered = tracker.drain(_DELIVERY_S)
        result = replace(
            result,
            undelivered=undelivered,
            tracking_problems=_tracking_problems(tracker),
            **_champion(tracker, lineage, self.spec),
        )
        _write_atomically(self.folder.summary_file, json.dumps(json.loads(result.to_json()), indent=2) + "\n")
        return result

    def _result(self, status: Literal["done", "interrupted"]) -> StudyResult:
        rows = self.search.finished()
        see, off = self.protocol.arms()
        return study_result(
            self.spec,
            rows,
            self.final.finished(),
            see,
            off,
            status=status,
            wall_s=time.time() - self.started_at,
            folder=self.folder,
            home=self.home,
        )

    def _register(self, tracker: Tracker) -> str | None:
        """Hand the winner's first final model to the registry; None where there is none to hand over."""
        champion = self._champion_arm()
        if champion is None or self.spec.protocol != "honest" or self.spec.final is None:
            return None
        lineage = final_lineage(champion, 0)
        row = next((row for row in self.final.finished() if row.lineage == lineage and row.value is not None), None)
        if row is None:
            return None
        model, trial, preprocessing = load_trained(self.folder.trial(lineage))
        model_folder = self.folder.root / "model"
        write_model_folder(model_folder, model, trial.model_dump_json(by_alias=True), preprocessing)
        candidate = _champion_candidate(self.spec, self.facts, self.protocol, champion, row.result)
        tracker.register(lineage, model_folder, candidate)
        return lineage

    def _champion_arm(self) -> Candidate | None:
        """SEE's winner, or the baseline where that did better on the same validation classes."""
        arms = [arm for arm in (self.protocol.winner(), self.protocol.baseline()) if arm]
        return max(arms, key=lambda arm: arm.value, default=None)

    def _tags(self) -> dict[str, str]:
        return {
            "protocol": self.spec.protocol,
            "fingerprint": self.facts.fingerprint,
            "split": self.facts.split,
            "dataset": self.spec.dataset.name,
            "loss": self.spec.loss.name,
            "backbone": self.spec.model.backbone,
            "embedding_dim": str(self.spec.model.embedding_dim),
            "tie_rule": "against the query, 1e-6",
            **{f"version.{name}": version(name) for name in ("see-tune", "torch", "timm", "ray", "optuna", "mlflow")},
            "python": platform.python_version(),
        }


class _TrackingListener(DeskListener):
    """What happens at the desk, told to MLflow."""

    def __init__(self, tracker: Tracker, spec: StudySpec, tags: Mapping[str, str]) -> None:
        self._tracker = tracker
        self._spec = spec
        self._tags = tags

    def on_start(self, work: Work) -> None:
        values = describe_values(work.row.values)
        self._tracker.start_run(
            work.row.lineage,
            name=f"{row_title(work.row)} {values}".strip(),
            params={**work.row.values, "trial": work.row.lineage, "seed": work.spec.seed},
            tags={
                **self._tags,
                "phase": work.row.plan.get("phase", "search"),
                "arm": "see" if work.spec.see.enabled else "off",
                "loss": work.spec.loss.name,
                "backbone": work.spec.model.backbone,
            },
            started_at=time.time(),
        )

    def on_epoch(self, work: Work, result: EpochResult) -> None:
        self._tracker.log_epoch(work.row.lineage, result)

    def on_end(self, work: Work, result: TrialResult) -> None:
        if result.status == "interrupted":
            return  # its run goes on when the study does
        best: dict[str, float] = {}
        if result.status == "complete" and not work.row.plan and result.best_value is not None:
            best = {f"best/{self._spec.objective}": result.best_value, "best/epoch": float(result.best_epoch or 0)}
        tags = {"device": result.device or work.where, **({"cause": result.cause} if result.cause else {}), **result.facts}
        self._tracker.end_run(work.row.lineage, status=result.status, ended_at=time.time(), tags=tags, metrics=best)


class _FailureGuard(DeskListener):
    """Stops a study whose trials all fail: 5 in a row, or half of at least 10."""

    def __init__(self) -> None:
        self.desk: Desk | None = None
        self.verdict = ""
        self._failed: list[bool] = []
        self._causes: list[str] = []

    def on_end(self, work: Work, result: TrialResult) -> None:
        if result.status == "interrupted":
            return
        self._failed.append(result.status == "failed")
        if self._failed[-1]:
            self._causes.append(result.cause or "unknown")
        in_a_row = len(self._failed) >= _FAILED_IN_A_ROW and all(self._failed[-_FAILED_IN_A_ROW:])
        half = len(self._failed) >= 2 * _FAILED_IN_A_ROW and 2 * sum(self._failed) >= len(self._failed)
        if (in_a_row or half) and self.desk:
            self.desk.stopping = True
            self.verdict = (
                f"{sum(self._failed)} of {len(self._failed)} trials failed, so the study was stopped. What they say:\n"
                + "\n".join(f"  - {cause}" for cause in dict.fromkeys(self._causes))
                + "\nMend the cause and run the same command again: it continues."
            )


# The study's folder


def stored_result(folder: StudyFolder) -> StudyResult | None:
    """The summary that the study's last session left, if there is one."""
    if not folder.summary_file.is_file():
        return None
    return StudyResult.from_json(folder.summary_file.read_text())


def _answers(stored: StudyResult, spec: StudySpec, until: Until) -> bool:
    """Whether a stored summary is the answer to this file, so that nothing has to run."""
    final_done = until == "search" or spec.final is None or (stored.see is not None and len(stored.see.seeds) >= spec.final.seeds)
    return stored.status == "done" and stored.trials >= spec.budget.trials and final_done and not stored.undelivered


def _refuse_changed(spec: StudySpec, folder: StudyFolder) -> None:
    """A study goes on under the settings it began with."""
    if not folder.spec_file.is_file():
        return
    frozen = parse_study(folder.spec_file.read_text(), str(folder.spec_file)).spec
    changed = identity_differences(frozen, spec)
    changed += [change for change in differences(frozen, spec) if change[0].startswith("search.") and change not in changed]
    if changed:
        lines = "\n".join(f"  - {key}: {old!r} -> {new!r}" for key, old, new in changed)
        raise StudyError(
            f"the study {spec.study} was begun with other settings, and its trials would not be comparable:\n{lines}\n"
            f"undo the change, or give the new study a name of its own: --name {spec.study}-2"
        )


@contextmanager
def _only_one(folder: StudyFolder) -> Iterator[None]:
    """One driver a study: the lock dies with its process, so a stale one needs no sweeping."""
    lock = filelock.FileLock(folder.lock_file, timeout=0)
    holder = folder.lock_file.with_suffix(".holder")
    try:
        lock.acquire()
    except filelock.Timeout:
        who = holder.read_text() if holder.is_file() else "another process"
        raise StudyError(f"this study is running already ({who}); wait for it, or choose another name with --name") from None
    try:
        holder.write_text(f"pid {os.getpid()} on {socket.gethostname()}")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def _open_ledgers(loaded: Loaded, folder: StudyFolder) -> tuple[Ledger, Ledger]:
    """Both ledgers, with what a dead session left RUNNING enqueued again, then trial 0 and the points to start with."""
    spec, storage = loaded.spec, f"sqlite:///{folder.optuna_db}"
    search = open_search_ledger(
        storage, spec.study, loaded.space, sampler=spec.sampler, pruner=spec.pruner, grace_epochs=grace_epochs(loaded)
    )
    final = open_final_ledger(storage, spec.study)
    search.requeue_interrupted()
    final.requeue_interrupted()
    for point in ([loaded.trial_zero] if loaded.trial_zero else []) + list(loaded.points):
        search.enqueue(point)
    return search, final


def _opened_board(spec: StudySpec, protocol: Protocol, search: Ledger, final: Ledger, slots: int) -> Board:
    """A board that knows what earlier sessions finished."""
    board = Board(Plan(spec.budget.trials, spec.train.epochs, protocol.planned_epochs(), plan_text(spec)), slots)
    for row in search.finished():
        board.recall(row)
    for row in final.finished():
        board.recall(row)
    return board


def plan_text(spec: StudySpec) -> str:
    """What comes after the search, in words."""
    if spec.final is None:
        return "no final phase"
    validation = spec.validation
    rerank = f"re-rank {validation.rerank_top} x {validation.rerank_folds}, " if validation.rerank_top else ""
    return f"{rerank}final {spec.final.seeds} seeds x {1 if spec.final.baseline == 'none' else 2}"


# The machine


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0))


def plan_resources(spec: StudySpec) -> Resources:
    """What a trial gets on this machine: a GPU each where there are any, else up to four trials that share the cores."""
    wanted, gpus, cores = spec.resources, count_gpus(), _cpu_count()
    per_trial = float(min(1, gpus)) if wanted.gpus == "auto" else wanted.gpus
    if per_trial:
        fitting = int(gpus / per_trial)
    else:
        fitting = min(cores, _SHARE_CORES) if wanted.cpus == "auto" else cores // wanted.cpus
    slots = max(1, min(fitting, wanted.max_parallel or fitting))
    return Resources(max(1, cores // slots) if wanted.cpus == "auto" else wanted.cpus, per_trial, slots)


@contextmanager
def _stops_on_signals(desk: Desk, watcher: Watcher) -> Iterator[None]:
    """Ctrl-C or SIGTERM once: stop after the epochs that were reported, and keep everything; twice: at once."""

    def stop(signum: int, frame: FrameType | None) -> None:
        if desk.stopping:
            raise KeyboardInterrupt
        desk.stopping = True
        watcher.note("stopping: running trials go back into the queue. Once more: at once")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# The answer


def _study_params(spec: StudySpec) -> dict[str, Any]:
    values = flat(spec.model_dump(by_alias=True, mode="json", exclude={"split", "stop_epoch"}))
    return {name: value for name, value in values.items() if not name.startswith(("search", "start_with"))}


def _answer_metrics(result: StudyResult, metric: str = "test/recall_at_1") -> dict[str, float]:
    answer: dict[str, float | None] = {}
    if result.see and metric in result.see.test_mean:
        answer["answer/test_recall_at_1"] = result.see.test_mean[metric].mean
    if result.gain:
        answer |= {"answer/gain": result.gain.mean, "answer/gain_low": result.gain.low, "answer/gain_high": result.gain.high}
    return {name: value for name, value in answer.items() if value is not None}


def _champion_candidate(
    spec: StudySpec, facts: DatasetFacts, protocol: Protocol, champion: Candidate, result: TrialResult
) -> ChampionCandidate:
    own = {name: value for name, value in result.epochs[-1].metrics.items() if name.startswith("test/")}
    arm = next(arm for arm in protocol.arms() if arm is not None and arm.lineage == champion.lineage)
    return ChampionCandidate(
        study=spec.study,
        dataset=spec.dataset.name,
        backbone=spec.model.backbone,
        embedding_dim=spec.model.embedding_dim,
        protocol=spec.protocol,
        fingerprint=facts.fingerprint,
        split_hash=facts.split,
        validation=champion.value,
        objective=spec.objective,
        test=own,
        test_mean={name: sum(values) / len(values) for name, values in arm.test.items()},
        crop=result.facts.get("crop", ""),
    )


def _champion(tracker: Tracker, lineage: str | None, spec: StudySpec) -> dict[str, Any]:
    """What to say of the registration: the champion's URI, or why there is none yet."""
    if lineage is None:
        why = "chosen on test classes" if spec.protocol == "paper" else "no final phase has run"
        return {"champion": None, "champion_note": why}
    registration = tracker.registration(lineage)
    if registration is None:
        return {"champion": None, "champion_note": "the tracking server is away: the next start registers it"}
    return {"champion": registration.uri, "champion_note": registration.note}


def _tracking_problems(tracker: Tracker) -> tuple[str, ...]:
    refused = (f"refused: {refusal.kind}: {refusal.error}" for refusal in tracker.refused())
    return (*([away] if (away := tracker.away()) else []), *refused)


def _no_answer(result: StudyResult) -> str:
    causes = "\n".join(f"  - {lineage}: {cause}" for lineage, cause in result.failures.items())
    return (
        f"no trial of {result.study} completed: {result.pruned} pruned, {result.failed} failed\n{causes}\n"
        f"mend the cause, or see one trial alone: see-tune train {result.folder}/study.yaml"
    )
