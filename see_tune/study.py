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
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import distributions, version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from see_tune.checks import DatasetFacts, count_gpus, preflight
from see_tune.errors import SeeTuneError, SpecError, StorageAwayError, StudyError, StudyFailedError
from see_tune.holding import held
from see_tune.home import Home, StudyFolder, find_home
from see_tune.looks import Look, count_look
from see_tune.model_folder import write_model_folder
from see_tune.node_checks import Gate, check_nodes
from see_tune.report.summary import describe_values, study_result
from see_tune.results import EpochResult, StudyEnd, StudyResult, TrialResult
from see_tune.search.board import Board, Plan
from see_tune.search.generations import Ledgers, check_storage, check_warm_start, open_ledgers
from see_tune.search.guard import FailureGuard, Quarantine
from see_tune.search.nodes import Node, Resources, check_cores, count_slots, has_left, share_out, wait_for_nodes
from see_tune.search.protocol import Candidate, Protocol, final_lineage, row_title
from see_tune.search.runner import join_cluster, log_to, run, start_engine
from see_tune.search.searcher import Desk, DeskListener, Work
from see_tune.spec.keys import PER_TRIAL, flat
from see_tune.spec.load import Loaded, dump_study, load_study, trial_values
from see_tune.spec.models import StudySpec
from see_tune.studies import (
    Until,
    begun_study,
    finished_note,
    frozen,
    refuse_changed,
    set_aside,
    settled,
    stored_result,
)
from see_tune.tracking.mlflow_tracker import Tracker
from see_tune.tracking.registry import Candidate as ChampionCandidate
from see_tune.training import load_trained, train_trial
from see_tune.wording import counted

_DELIVERY_S = 60.0
_NODES_S = 180.0  # after its head came back, a cluster's workers are late


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
    fresh: bool = False,
    address: str | None = None,
    watcher: Watcher | None = None,
) -> StudyResult:
    """Run the study of a YAML file, or continue it, and return its answer.

    file: a study's YAML (``search_spaces/cars.yaml``).
    home: the folder for everything written; default SEE_TUNE_HOME, then ``./runs``.
    overrides: ``key=value`` assignments over the file, as ``--set``.
    until: "search" ends before the final phase.
    fresh: set an earlier study of this name aside, and begin anew.
    address: of a Ray cluster to run the trials on (``auto`` or ``host:port``); None: this machine alone.
    watcher: told of every row and epoch.

    Raises:
        SpecError, DatasetError, WeightsError, StudyError: the user's input is wrong; nothing was started.
        StudyFailedError: no trial completed.
    """
    if not isinstance(file, str | os.PathLike):
        raise SpecError(
            f"run_study was given a {type(file).__name__}; it takes the path of a study's YAML, as "
            "run_study('search_spaces/cub.yaml'); single keys are changed by overrides=['train.epochs=2']"
        )
    loaded = load_study(Path(file), overrides=overrides)
    at_home, watcher = find_home(Path(home) if home else None), watcher or Watcher()
    if fresh and (folder := at_home.study(loaded.spec.study)).root.is_dir():
        watcher.note(f"set aside: {set_aside(folder)}")
    if (stored := settled(loaded, at_home, until)) is not None:
        watcher.note(finished_note(stored))
        return stored
    return run_loaded(loaded, at_home, until=until, address=address, watcher=watcher)


def finish_study(name: str, home: Home, *, watcher: Watcher, address: str | None = None) -> StudyResult:
    """The final phase of a study of this home, from what its search has found so far.

    Raises: StudyError where there is no such study, or it has no final phase. Otherwise as `run_study`.
    """
    loaded = begun_study(home, name)
    if loaded.spec.final is None:
        raise StudyError(
            f"the study {name} was begun with final: none; give it a final phase: "
            f"{home.command('run', str(home.study(name).spec_file), '--set', 'final.seeds=5')}"
        )
    return run_loaded(loaded, home, until="final", extend=False, address=address, watcher=watcher)


def run_loaded(
    loaded: Loaded, home: Home, *, until: Until, watcher: Watcher, extend: bool = True, address: str | None = None
) -> StudyResult:
    """`run_study` for a study that has been loaded already and is not finished.

    extend: False leaves the search as it stands.
    """
    if address is None:
        return _run_on(_this_machine(), loaded, home, until, watcher, extend=extend)
    with join_cluster(address):
        nodes = wait_for_nodes(_NODES_S)
        return _run_on(nodes, loaded, home, until, watcher, extend=extend)


def _run_on(nodes: Sequence[Node], loaded: Loaded, home: Home, until: Until, watcher: Watcher, *, extend: bool) -> StudyResult:
    folder, trial = home.study(loaded.spec.study), trial_values(loaded.spec)
    facts = preflight(
        loaded.spec,
        trial,
        home,
        gpus={node.host: node.gpus for node in nodes},
        elsewhere=lambda: [
            *_around_the_trials(loaded, home, nodes),
            *(check_nodes(nodes, trial, home) if nodes[0].id else ()),
        ],
        progress=watcher.decoding,
    )
    for note in facts.notes:
        watcher.note(f"note: {note}")
    folder.make()
    with held(folder):
        if folder.spec_file.is_file():
            refuse_changed(frozen(folder).spec, loaded.spec)
        session = _Run(loaded, home, folder, facts, nodes, until, watcher, extend=extend)
        _write_atomically(folder.spec_file, dump_study(loaded.spec))
        if stored := stored_result(folder):  # no answer any more, until this session ends
            _write_result(folder, replace(stored, status="interrupted"))
        return session.run()


def check_start(loaded: Loaded, home: Home) -> DatasetFacts:
    """What can be known, with nothing started and nothing left behind, of `run_loaded` on this machine.

    Raises: UserError with everything that it would refuse.
    """
    here = _this_machine()
    return preflight(
        loaded.spec,
        trial_values(loaded.spec),
        home,
        elsewhere=lambda: _around_the_trials(loaded, home, here),
        thorough=False,
    )


def _around_the_trials(loaded: Loaded, home: Home, nodes: Sequence[Node]) -> list[SeeTuneError]:
    """What is wrong with where the trials run and lie, and with those they are to learn from."""
    folder = home.study(loaded.spec.study)
    return [
        *check_cores(loaded.spec.resources, nodes),
        *check_storage(folder, loaded.spec),
        *check_warm_start(loaded, home),
    ]


class _Run:
    """One session of a study: its ledgers, its tracker, and the desk between them and Ray."""

    def __init__(
        self,
        loaded: Loaded,
        home: Home,
        folder: StudyFolder,
        facts: DatasetFacts,
        nodes: Sequence[Node],
        until: Until,
        watcher: Watcher,
        *,
        extend: bool,
    ) -> None:
        self.spec = loaded.spec
        self.home = home
        self.folder = folder
        self.facts = facts
        self.watcher = watcher
        self.until = until
        self.started_at = time.time()
        self.ledgers = open_ledgers(loaded, home)
        self.search, self.final = self.ledgers.search, self.ledgers.final
        self.ledgers.storage.tell = watcher.note
        for line in _ledger_notes(self.ledgers, loaded.spec):
            watcher.note(line)
        self.protocol = Protocol(
            loaded.spec,
            self.search,
            self.final,
            until=until,
            off=self.ledgers.off,
            baseline=self.ledgers.baseline,
            extend=extend,
        )
        self.nodes = nodes
        self.on_cluster = bool(nodes[0].id)
        self.resources = share_out(loaded.spec.resources, nodes)
        self.board = _opened_board(self.spec, self.protocol, self.ledgers, self.resources.slots)

    def run(self) -> StudyResult:
        tracker = Tracker(self.home, study=self.spec.study, dataset=self.spec.dataset.name, uri=self.spec.tracking.uri)
        try:
            tracker.start_study(params=_study_params(self.spec), tags=self._tags(), started_at=self.started_at)
            _write_atomically(self.folder.environment_file, _environment())
            for file in (self.folder.spec_file, self.folder.environment_file):
                tracker.log_artifact(file)
            desk, guard = self._open_desk(tracker)
            with _stops_on_signals(desk, self.watcher):  # up to the summary: an answer that is being written is not cut
                self._run_rows(desk)
                if guard.verdict:
                    self._fail(tracker, guard.verdict)
                unfit = {f"node {identity[:6]}": why for identity, why in desk.unfit.items()}
                return self._conclude(tracker, interrupted=desk.stopping, quarantined={**desk.quarantined, **unfit})
        except StorageAwayError:
            tracker.end_study(status="interrupted", ended_at=time.time())
            tracker.drain(_DELIVERY_S)
            raise
        finally:
            tracker.close()

    def _open_desk(self, tracker: Tracker) -> tuple[Desk, FailureGuard]:
        guard = FailureGuard()
        listeners: list[DeskListener] = [
            _LookCounter(self.home, self.spec.study, self.facts.fingerprint),
            _TrackingListener(tracker, self.spec, self._tags()),
            self.board,
            guard,
            self.watcher,
        ]
        desk = Desk(
            self.protocol.phases(),
            slots=self.resources.slots,
            retries=self.spec.failure.retries,
            listeners=listeners,
            folder_of=self.folder.trial,
            has_left=has_left if self.on_cluster else _stays,
        )
        guard.desk = desk
        listeners.append(Quarantine(self.spec.failure.quarantine_after, desk, self.watcher.note))
        return desk, guard

    def _run_rows(self, desk: Desk) -> None:
        self.watcher.begin(self.spec, self.board, self.folder)
        trial = partial(train_trial, home=self.home, threads=self.resources.cpus)
        try:
            if self.on_cluster:
                gate = Gate(self.nodes, trial_values(self.spec), self.home, self.watcher.note)
                with log_to(self.folder.engine_log), closing(gate):
                    slots = self._slots_behind(gate, desk)
                    run(desk, trial, self.resources, results_folder=self.folder.ray_results, count_slots=slots)
            else:
                (here,) = self.nodes
                with start_engine(cpus=here.cpus, gpus=here.gpus, log_file=self.folder.engine_log):
                    run(desk, trial, self.resources, results_folder=self.folder.ray_results)
        finally:
            self.watcher.end()

    def _slots_behind(self, gate: Gate, desk: Desk) -> Callable[[], int]:
        """Nodes join a cluster and leave it: how many trials it takes now, and which nodes the desk may send them to."""
        wanted, each = self.spec.resources, self.resources

        def count() -> int:
            nodes = gate.nodes()
            desk.nodes = frozenset(gate.admitted)
            desk.unfit = {node.id: f"{node.host}: {why}" for node, why in gate.unfit.items()}
            self.board.slots = count_slots(wanted, nodes, each.cpus, each.gpus)
            return self.board.slots

        return count

    def _conclude(self, tracker: Tracker, *, interrupted: bool, quarantined: Mapping[str, str]) -> StudyResult:
        result = replace(self._result("interrupted" if interrupted else "done"), quarantined=quarantined)
        if not interrupted and (why := self._unanswered(result)):
            self._fail(tracker, why)
        lineage = None if interrupted else self._register(tracker)
        if not interrupted:
            self._end_abandoned(tracker)
        tracker.log_study_metrics(_answer_metrics(result))
        tracker.end_study(status="interrupted" if interrupted else "complete", ended_at=time.time())
        undelivered = tracker.drain(_DELIVERY_S)
        result = replace(
            result,
            undelivered=undelivered,
            tracking_problems=_tracking_problems(tracker),
            **_champion(tracker, lineage, self.spec),
        )
        _write_result(self.folder, result)
        self._report(tracker)
        return result

    def _report(self, tracker: Tracker) -> None:
        """The report beside the summary and on the parent run. A study whose report fails has its answer all the same."""
        from see_tune.report.page import write_report  # its figures take seconds to import, and the first trial need not wait

        try:
            report = write_report(self.spec.study, self.home)
        except Exception as error:
            again = self.home.command("report", self.spec.study)
            self.watcher.note(f"no report: {type(error).__name__}: {error}. Try again: {again}")
            return
        tracker.log_artifact(report.html)
        tracker.log_artifact(report.markdown)
        tracker.log_artifact(report.figures, "figures")
        tracker.set_description(report.answer)
        tracker.drain(_DELIVERY_S)

    def _unanswered(self, result: StudyResult) -> str:
        """Why a study whose rows have all ended has no answer; empty where it has one."""
        if result.see is None:
            return _no_answer(result)
        if self.until == "final" and self.spec.final is not None and not result.see.test:
            return _no_final(result)
        return ""

    def _fail(self, tracker: Tracker, why: str) -> NoReturn:
        if self.board.snapshot().phase == "search":
            for ledger in (self.search, self.ledgers.off):
                if ledger is not None:
                    ledger.give_up()
        _write_result(self.folder, self._result("failed"))
        self._report(tracker)
        tracker.end_study(status="failed", ended_at=time.time())
        tracker.drain(_DELIVERY_S)
        raise StudyFailedError(why)

    def _end_abandoned(self, tracker: Tracker) -> None:
        """Runs of rows that were cut and never go on: outside a changed search space, or of a winner that lost."""
        for lineage in (*self.ledgers.carried.abandoned, *self.final.withdrawn()):
            tracker.end_run(lineage, status="interrupted", ended_at=time.time(), tags={"cause": "no longer wanted"})

    def _result(self, status: StudyEnd) -> StudyResult:
        rows = self.search.finished()
        see, off = self.protocol.arms()
        return study_result(
            self.spec,
            rows,
            [*self.final.finished(), *(self.ledgers.off.finished() if self.ledgers.off else ())],
            see,
            off,
            status=status,
            wall_s=time.time() - self.started_at,
            folder=self.folder,
            home=self.home,
            search_ended=self.protocol.search_ended(),
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
            **({"git_commit": commit} if (commit := _git_commit()) else {}),
        }


class _LookCounter(DeskListener):
    """Counts what was measured on test classes, before anybody is told of it."""

    def __init__(self, home: Home, study: str, fingerprint: str) -> None:
        self._home = home
        self._study = study
        self._fingerprint = fingerprint

    def on_epoch(self, work: Work, result: EpochResult) -> None:
        if _is_look(work, result):
            look = Look(self._fingerprint, self._study, work.row.lineage, result.epoch, result.timestamp)
            count_look(self._home, look)


def _is_look(work: Work, result: EpochResult) -> bool:
    """Whether an epoch was measured on test classes; those of a trial's later members are told as a mean at its end alone."""
    if any(name.startswith("test/") for name in result.metrics):
        return True
    last, of_member = work.spec.last_epoch, (result.epoch - 1) % work.spec.last_epoch + 1
    measured = of_member == last or of_member % work.spec.evaluate.every == 0
    return work.metric.startswith("test/") and result.epoch > last and measured


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
        if result.epoch <= work.spec.last_epoch:  # of a trial of several trainings, the first one's; their mean comes at the end
            self._tracker.log_epoch(work.row.lineage, result)

    def on_end(self, work: Work, result: TrialResult) -> None:
        if result.status == "interrupted":
            return  # its run goes on when the study does
        for epoch in result.epochs if work.mean_curve(result) else ():
            means = {f"mean/{name}": value for name, value in epoch.metrics.items()}
            self._tracker.log_epoch(work.row.lineage, replace(epoch, metrics=means))
        best: dict[str, float] = {}
        if result.status == "complete" and not work.row.plan and result.best_value is not None:
            best = {f"best/{work.metric.replace('/', '_')}": result.best_value, "best/epoch": float(result.best_epoch or 0)}
        tags = {"device": result.device or work.where, "cause": result.cause or "none", **result.facts}
        self._tracker.end_run(work.row.lineage, status=result.status, ended_at=time.time(), tags=tags, metrics=best)


# The study's folder


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def _write_result(folder: StudyFolder, result: StudyResult) -> None:
    _write_atomically(folder.summary_file, json.dumps(json.loads(result.to_json()), indent=2) + "\n")


def _ledger_notes(ledgers: Ledgers, spec: StudySpec) -> list[str]:
    """What the ledgers' opening has to say to people."""
    notes = [f"tried again, after the last session gave up: {', '.join(ledgers.retried)}"] if ledgers.retried else []
    notes += ledgers.carried.lines()
    if spec.warm_start:
        known = counted(ledgers.known, "trial fits and is", "trials fit and are")
        notes.append(f"warm start: of {', '.join(spec.warm_start)}, {known} known")
    return notes


def _opened_board(spec: StudySpec, protocol: Protocol, ledgers: Ledgers, slots: int) -> Board:
    """A board that knows what earlier sessions finished."""
    trial = trial_values(spec)
    members = max(1, len(trial.members))
    plan = Plan(protocol.planned_trials(), trial.epochs_in_all, protocol.planned_epochs(), plan_text(spec), members)
    board = Board(plan, slots)
    for ledger in (ledgers.search, ledgers.final, ledgers.off):
        for row in ledger.finished() if ledger else ():
            board.recall(row)
    return board


def plan_text(spec: StudySpec) -> str:
    """What comes after the search, in words."""
    if spec.final is None:
        return "no final phase"
    validation = spec.validation
    twice = "2 x " if spec.searches_baseline else ""
    rerank = f"re-rank {twice}{validation.reranked} x {validation.rerank_folds}, " if validation.reranked else ""
    beside = "SEE off searched as well, " if spec.searches_baseline else ""
    return f"{beside}{rerank}final {counted(spec.final.seeds, 'seed')} x {1 if spec.final.baseline == 'none' else 2}"


# The machine


def _this_machine() -> tuple[Node, ...]:
    return (Node("", socket.gethostname(), len(os.sched_getaffinity(0)), count_gpus()),)


def plan_resources(spec: StudySpec) -> Resources:
    """What a trial gets on this machine."""
    return share_out(spec.resources, _this_machine())


def _stays(node_id: str) -> bool:
    return False


@contextmanager
def _stops_on_signals(desk: Desk, watcher: Watcher) -> Iterator[None]:
    """Ctrl-C or SIGTERM once: stop after the epochs that were reported, and keep everything; Ctrl-C twice: at once.

    SIGTERM comes from programs, and twice from those that send it to a process and to its group (`timeout`).
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        if not desk.stopping:
            desk.stopping = True
            watcher.note("stopping: running trials go back into the queue. Ctrl-C once more: at once")
        elif signum == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _git_commit() -> str | None:
    """The commit of see-tune's own checkout; None where it is an installed package."""
    checkout = Path(__file__).parents[1]
    if not (checkout / ".git").exists():
        return None
    try:
        asked = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git here, or a checkout that is another user's
        return None
    return asked.stdout.strip()


def _environment() -> str:
    """Python, the system and every installed package with its version, as pip writes them."""
    packages = sorted({f"{found.name}=={found.version}" for found in distributions()}, key=str.lower)
    return "\n".join([f"# Python {platform.python_version()}, {platform.platform()}", *packages]) + "\n"


# The answer


def _study_params(spec: StudySpec) -> dict[str, Any]:
    values = flat(spec.model_dump(by_alias=True, mode="json", exclude=set(PER_TRIAL)))
    return {name: value for name, value in values.items() if not name.startswith(("search", "start_with"))}


def _answer_metrics(result: StudyResult, metric: str = "test/recall_at_1") -> dict[str, float]:
    answer: dict[str, float | None] = {}
    if result.see and metric in result.see.test_mean:
        answer["answer/test_recall_at_1"] = result.see.test_mean[metric].mean
    if result.gain:
        answer |= {"answer/gain": result.gain.mean, "answer/gain_low": result.gain.low, "answer/gain_high": result.gain.high}
    if over := result.gain_over_classes:
        answer |= {"answer/gain_low_over_classes": over.low, "answer/gain_high_over_classes": over.high}
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
    happened = f"no trial of {result.study} completed: {result.pruned} pruned, {result.failed} failed"
    if not result.failed:
        return f"{happened}. Give its search more: --trials N, or --set budget.{result.search_ended}=MORE"
    return f"{happened}\n{_mend(result)}"


def _no_final(result: StudyResult) -> str:
    return f"{result.study} has searched, and none of its final runs completed\n{_mend(result)}"


def _mend(result: StudyResult) -> str:
    causes = "\n".join(f"  - {lineage}: {cause}" for lineage, cause in result.failures.items())
    return (
        f"{causes}\nMend the cause and run the same command again: what failed is tried again (--fresh begins anew). "
        f"See one trial alone: see-tune train {result.folder}/study.yaml"
    )
