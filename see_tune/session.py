"""One session of a study: from its first row to its answer.

    ledgers -> desk -> [search -> re-rank -> final]  (Ray, the tracker, the board)
            -> answer -> registration -> summary.json, report

Nothing is decided here: which rows run is protocol.py's, how a row runs is the trainer's, who is champion is the registry's.
"""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import distributions, version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from see_tune.checks import DatasetFacts
from see_tune.errors import EngineLostError, StorageAwayError, StudyFailedError, TrackingError
from see_tune.home import Home, StudyFolder
from see_tune.looks import Look, count_look
from see_tune.node_checks import Gate
from see_tune.report.numbers import describe_values
from see_tune.report.summary import study_result
from see_tune.results import EpochResult, StudyEnd, StudyResult, TrialResult
from see_tune.search.board import Board, Plan, Watcher
from see_tune.search.desk import Desk, DeskListener, Work
from see_tune.search.engine import Engine
from see_tune.search.generations import Ledgers, open_ledgers
from see_tune.search.guard import FailureGuard, Quarantine
from see_tune.search.nodes import Node, count_slots, has_left, share_out
from see_tune.search.protocol import Candidate, Protocol, final_lineage, plan_text
from see_tune.search.rows import row_title
from see_tune.search.runner import log_to, run
from see_tune.signals import Presses
from see_tune.spec.keys import PER_TRIAL, flat
from see_tune.spec.load import Loaded, dump_study, trial_values
from see_tune.spec.models import StudySpec
from see_tune.studies import Until, stored_result
from see_tune.tracking.mlflow_tracker import Tracker
from see_tune.tracking.registry import Candidate as ChampionCandidate
from see_tune.trial import run_trial
from see_tune.wording import counted

_DELIVERY_S = 60.0
_AWAY_S = 5.0  # of them, for a server that does not answer: the next start tells it


class Session:
    """One session of a study: its ledgers, its tracker, and the desk between them and Ray.

    facts: of its dataset. nodes: what its trials may have. engine: a Ray of its own, which it ends; None on a cluster.
    """

    def __init__(
        self,
        loaded: Loaded,
        home: Home,
        folder: StudyFolder,
        facts: DatasetFacts,
        nodes: Sequence[Node],
        engine: Engine | None,
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
        self.engine = engine
        self.resources = share_out(loaded.spec.resources, nodes)
        self.board = _opened_board(self.spec, self.protocol, self.ledgers, self.resources.slots)

    def run(self) -> StudyResult:
        """Everything from its first row to its answer, which is kept as the study's summary."""
        _write_atomically(self.folder.spec_file, dump_study(self.spec))
        if stored := stored_result(self.folder):  # no answer any more, until this session ends
            _write_result(self.folder, replace(stored, status="interrupted"))
        tracker = Tracker(
            self.home,
            study=self.spec.study,
            dataset=self.spec.dataset.called,
            uri=self.spec.tracking.uri,
            on_away=self._note_away,
        )
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
        except (StorageAwayError, EngineLostError):
            with suppress(TrackingError):  # a full disk takes no more of the one than of the other
                tracker.end_study(status="interrupted", ended_at=time.time())
                _deliver(tracker)
            raise
        finally:
            tracker.close()

    def _note_away(self, why: str) -> None:
        self.watcher.note(f"tracking: MLflow is away, and is told everything when it is back ({why})")

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
            has_left=self._is_gone,
        )
        guard.desk = desk
        listeners.append(Quarantine(self.spec.failure.quarantine_after, desk, self.watcher.note))
        return desk, guard

    def _run_rows(self, desk: Desk) -> None:
        self.watcher.begin(self.spec, self.board, self.folder)
        trial = partial(run_trial, home=self.home, threads=self.resources.cpus)
        try:
            with log_to(self.folder.engine_log):
                if self.engine is None:
                    with closing(Gate(self.nodes, trial_values(self.spec), self.home, self.watcher.note)) as gate:
                        slots = self._slots_behind(gate, desk)
                        run(desk, trial, self.resources, results_folder=self.folder.ray_results, count_slots=slots)
                else:
                    self.engine.wait(desk.give_up)
                    try:
                        run(desk, trial, self.resources, results_folder=self.folder.ray_results)
                    finally:
                        self.engine.end()
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

    def _is_gone(self, node_id: str) -> bool:
        return has_left(node_id) if self.engine is None else self.engine.is_lost()

    def _conclude(self, tracker: Tracker, *, interrupted: bool, quarantined: Mapping[str, str]) -> StudyResult:
        result = replace(self._result("interrupted" if interrupted else "done"), quarantined=quarantined)
        if not interrupted and (why := self._unanswered(result)):
            self._fail(tracker, why)
        lineage = None if interrupted else self._register(tracker)
        if not interrupted:
            self._end_abandoned(tracker)
        tracker.log_study_metrics(_answer_metrics(result))
        tracker.end_study(status="interrupted" if interrupted else "complete", ended_at=time.time())
        undelivered = _deliver(tracker)
        result = replace(
            result,
            undelivered=undelivered,
            tracking_problems=_tracking_problems(tracker),
            **_champion(tracker, lineage),
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
        if not tracker.away():  # else it was waited for just now
            _deliver(tracker)

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
        _deliver(tracker)
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
            trained_s=sum(ledger.trained_s for ledger in (self.search, self.final, self.ledgers.off) if ledger),
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
        from see_tune.model_folder import write_model_folder  # with torch, which nothing before this needs
        from see_tune.training import load_trained

        stored = load_trained(self.folder.trial(lineage))
        model_folder = self.folder.root / "model"
        spec_json = stored.spec.model_dump_json(by_alias=True)
        write_model_folder(model_folder, stored.model, spec_json, stored.preprocessing, stored.trained_on)
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
            "dataset": self.spec.dataset.called,
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
        if result.status == "interrupted":  # until its row is handed out again
            self._tracker.end_run(work.row.lineage, status="interrupted", ended_at=time.time())
            return
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
        for cut in ledger.cut() if ledger else ():
            board.recall_cut(cut)
    return board


@contextmanager
def _stops_on_signals(desk: Desk, watcher: Watcher) -> Iterator[None]:
    """Ctrl-C or SIGTERM once: stop after the epochs that were reported, and keep everything; Ctrl-C twice: at once.

    Signals of programs come twice from those that send them to a process and to its group (`timeout`). Python hears signals
    in the main thread alone: they do not reach a study that a program runs in another one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    presses = Presses()

    def stop(signum: int, frame: FrameType | None) -> None:
        if presses.is_echo():
            return
        if not desk.stopping:
            desk.stopping = True
            watcher.note("stopping: running trials go back into the queue. Ctrl-C once more: at once")
        elif signum == signal.SIGINT and callable(interrupt := before[signal.SIGINT]):
            interrupt(signum, frame)

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
        dataset=spec.dataset.called,
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


def _champion(tracker: Tracker, lineage: str | None) -> dict[str, Any]:
    """What to say of the registration: the champion's URI, or why there is none yet; nothing where nothing was handed over."""
    if lineage is None:
        return {}
    registration = tracker.registration(lineage)
    if registration is None:
        return {"champion": None, "champion_note": "the tracking server is away: the next start registers it"}
    return {"champion": registration.uri, "champion_note": registration.note}


def _deliver(tracker: Tracker) -> int:
    """Wait for the delivery of what was told so far; returns how many events are left for the next start."""
    return tracker.drain(_DELIVERY_S, away_s=_AWAY_S)


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
