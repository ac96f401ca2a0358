"""What a study costs beside its training: the start, a trial, an epoch, and whether any of it grows with the trials behind it.

    python tests/benchmarks/bench_overhead.py [--trials 200] [--many 1000] [--trial-s 20] [--parts help start trials epochs busy]

    help     see-tune --help, in seconds, and that it imports no engine
    start    see-tune run up to its first trial's first step, less the dataset's load, against a bare ray.init and an empty
             trainable's first report; and against one that imports torch and timm, as any trainer must
    trials   trials of an empty trainer with 5 epochs through Ray, the ledger and the tracker: seconds a trial
    epochs   the driver's own time for a reported epoch behind `trials` and behind `many` trials, with tracking and without Ray
    busy     the share of their time for which two slots train: eight trials of `trial-s` seconds that sleep, through Ray

Each part prints what was measured beside what is wanted. The trainer is empty; a study is not: its storage, its spool and its
MLflow store are those of any study, on the disk of the temporary folder.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from see_tune.home import Home
from see_tune.results import EpochResult, TrialResult
from see_tune.search.desk import DeskListener, Work

EPOCHS = 5
STUDY = """
study: overhead
dataset: {{name: glyphs, classes: 40}}
train: {{epochs: {epochs}}}
search:
  see.n_aug: {{int: [1, 15]}}
  see.lambda: {{float: [0.0, 2.0]}}
sampler: {{name: random}}
budget: {{trials: {trials}}}
pruner: {{name: {pruner}, grace_epochs: 2, force: true}}
final: none
"""

BARE = """
import importlib, os, sys, time
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AIR_NEW_OUTPUT="0", TUNE_DISABLE_AUTO_CALLBACK_LOGGERS="1")
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)
started = time.perf_counter()
imported = sys.argv[2:]
import ray
from ray import tune
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
class First(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        print(f"seconds {time.perf_counter() - started}", flush=True)
        ray.shutdown()
        os._exit(0)
def empty(config):
    for name in imported:
        importlib.import_module(name)
    tune.report({"x": 1})
run = tune.RunConfig(storage_path=sys.argv[1], callbacks=[First()], verbose=0)
tune.Tuner(tune.with_resources(empty, {"cpu": 1}), run_config=run).fit()
"""

OURS = """
import os, sys, time
started = time.perf_counter()
from see_tune.cli import app, progress
class First(progress.PlainProgress):
    def on_epoch(self, work, result):
        print(f"seconds {time.perf_counter() - started - result.duration_s}", flush=True)
        os.kill(os.getpid(), 15)
progress.choose_watcher = lambda as_json: First(sys.stdout)
app.main(["run", sys.argv[1], "--home", sys.argv[2], "--name", f"s{os.getpid()}", "--until", "search"])
"""

LOAD = """
import sys, time
from pathlib import Path
from see_tune.checks import read_dataset
from see_tune.data.splits import split_table
from see_tune.home import find_home
from see_tune.spec.load import load_study, trial_values
from see_tune.training.parts import make_preprocessing, open_table
trial, home = trial_values(load_study(Path(sys.argv[1])).spec), find_home(Path(sys.argv[2]))
started = time.perf_counter()
split_table(read_dataset(trial, home), **trial.split.model_dump())
open_table(trial, home, make_preprocessing(trial), threads=1)
print(f"seconds {time.perf_counter() - started}")
"""


def quick(spec: object, *, folder: Path, on_epoch: Callable[[EpochResult, Path | None], None]) -> TrialResult:
    """A trainer that does nothing."""
    history = []
    for epoch in range(1, EPOCHS + 1):
        history.append(EpochResult(epoch, {"val/recall_at_1": 0.5, "train/loss": 1.0}, time.time(), 0.0))
        on_epoch(history[-1], None)
    return TrialResult("complete", tuple(history), 1, 0.5)


def bench_help() -> None:
    command = [sys.executable, "-m", "see_tune.cli.app", "--help"]
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    code = "import sys, see_tune.cli.app; print(sorted({'torch', 'ray', 'mlflow', 'optuna'} & set(sys.modules)))"
    engines = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    print(f"see-tune --help: {min(times):.2f} s (wanted: under 0.5 s); engines imported: {engines}")


def bench_start(folder: Path) -> None:
    file, home = folder / "overhead.yaml", str(folder / "home")
    file.write_text(STUDY.format(epochs=2, trials=1, pruner="asha"))
    first = _seconds(OURS, str(file), home)  # renders the glyphs, builds the model once, creates the tracking store
    load = _seconds(LOAD, str(file), home)
    turns = [
        (
            _seconds(OURS, str(file), home),
            _seconds(BARE, str(folder / f"ray{turn}")),
            _seconds(BARE, str(folder / f"ray{turn}"), "torch", "timm"),
        )
        for turn in range(5)
    ]
    ours, bare, importing = (statistics.median(side) for side in zip(*turns, strict=True))
    print(
        f"start to the first step: {ours:.1f} s, with the dataset's load of {load:.1f} s; first time in a home: {first:.1f} s\n"
        f"bare Ray: {bare:.1f} s; ratio without the load {(ours - load) / bare:.2f} (wanted: 1.3)\n"
        f"bare Ray whose trial imports torch and timm: {importing:.1f} s; ratio without the load {(ours - load) / importing:.2f}"
    )


def _seconds(code: str, *arguments: str) -> float:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("seconds ")), None)
    if line is None:
        raise SystemExit(f"no first step:\n{done.stdout}\n{done.stderr}")
    return float(line.split()[1])


def bench_trials(folder: Path, trials: int) -> None:
    from see_tune.search.engine import Engine
    from see_tune.search.runner import Resources, run

    desk, close = _open_desk(folder, trials, slots=2)
    with Engine(cpus=2, gpus=0) as engine:
        engine.wait(desk.give_up)
        started = time.perf_counter()
        run(desk, quick, Resources(1, 0, 2), results_folder=folder / "ray")
        seconds = time.perf_counter() - started
    close()
    print(f"{trials} empty trials of {EPOCHS} epochs: {seconds / trials:.2f} s a trial (wanted: at most 0.5 s)")


def sleep_through(
    spec: object, *, seconds: float, folder: Path, on_epoch: Callable[[EpochResult, Path | None], None]
) -> TrialResult:
    """A trainer that takes its time and no core, and says when it began and ended."""
    began, history = time.time(), []
    for epoch in range(1, EPOCHS + 1):
        time.sleep(seconds / EPOCHS)
        history.append(EpochResult(epoch, {"val/recall_at_1": 0.5}, time.time(), seconds / EPOCHS))
        on_epoch(history[-1], None)
    return TrialResult("complete", tuple(history), 1, 0.5, facts={"began": str(began), "ended": str(time.time())})


def bench_busy(folder: Path, seconds: float, trials: int = 8, slots: int = 2) -> None:
    """From the first trial's first second to the last one's end."""
    from see_tune.search.engine import Engine
    from see_tune.search.runner import Resources, run

    desk, close = _open_desk(folder, trials, slots=slots, pruner="none")
    seen = _Spans()
    desk._listeners.append(seen)
    with Engine(cpus=slots, gpus=0) as engine:
        engine.wait(desk.give_up)
        run(desk, partial(sleep_through, seconds=seconds), Resources(1, 0, slots), results_folder=folder / "ray")
    close()
    whole = max(ended for _, ended in seen.spans) - min(began for began, _ in seen.spans)
    busy = sum(ended - began for began, ended in seen.spans) / (slots * whole)
    print(
        f"{len(seen.spans)} trials of {seconds:.0f} s in {slots} slots: busy {100 * busy:.1f} % (wanted: at least 95 %, for 60 s)"
    )


def bench_epochs(folder: Path, few: int, many: int) -> None:
    """The driver's share of an epoch, over the last 50 trials of a study with so many: its spool is delivered meanwhile."""
    after_few = _driver_seconds(folder / "few", few)
    after_many = _driver_seconds(folder / "many", many)
    print(
        f"driver's time for a reported epoch: {1000 * after_few:.1f} ms behind {few} trials, {1000 * after_many:.1f} ms behind "
        f"{many} (wanted: at most 40 ms), ratio {after_many / after_few:.2f} (wanted: at most 1.3)"
    )


def _driver_seconds(folder: Path, trials: int) -> float:
    """Median CPU seconds of the driver's thread an epoch, handing the trial out and closing it included, over the last 50 trials.

    Not wall-clock: on a machine with other work that tells of the other work.
    """
    folder.mkdir()
    desk, close = _open_desk(folder, trials, slots=1)
    seconds = []
    for number in range(trials):
        started = time.thread_time()
        ray_id = f"ray-{number}"
        if desk.take(ray_id) is None:
            break

        def on_epoch(result: EpochResult, checkpoint: Path | None, ray_id: str = ray_id) -> None:
            desk.receive(ray_id, {"epoch_result": result.to_json(), "where": "here:cpu"})

        outcome = quick(None, folder=folder, on_epoch=on_epoch)
        desk.receive(ray_id, {"outcome": outcome.to_json()})
        desk.close(ray_id, lost=False)
        seconds.append((time.thread_time() - started) / EPOCHS)
    close()
    return statistics.median(seconds[-50:])


class _Spans(DeskListener):
    """When each trial began and ended."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    def on_end(self, work: Work, result: TrialResult) -> None:
        self.spans.append((float(result.facts["began"]), float(result.facts["ended"])))


def _open_desk(folder: Path, trials: int, slots: int, pruner: str = "asha"):  # type: ignore[no-untyped-def]
    """A study's desk with its ledgers, its tracker and its board, as session.py puts them together; without a baseline."""
    from see_tune.search.board import Board, Plan
    from see_tune.search.desk import Desk, Phase, Stream
    from see_tune.search.generations import open_ledgers
    from see_tune.search.protocol import Protocol
    from see_tune.session import _TrackingListener
    from see_tune.spec.load import parse_study, trial_values
    from see_tune.tracking.mlflow_tracker import Tracker

    loaded, home = parse_study(STUDY.format(epochs=EPOCHS, trials=trials, pruner=pruner), "overhead.yaml"), Home(folder / "home")
    study = home.study("overhead").make()
    ledgers = open_ledgers(loaded, home)
    protocol = Protocol(loaded.spec, ledgers.search, ledgers.final, until="search")
    tracker = Tracker(home, study="overhead", dataset="glyphs", uri="local")
    tracker.start_study(params={}, tags={}, started_at=time.time())
    board = Board(Plan(trials, EPOCHS, 0, ""), slots)
    stream = Stream(ledgers.search, lambda row: trial_values(loaded.spec), protocol._within_budget)
    desk = Desk(
        iter([Phase("search", [stream])]),
        slots=slots,
        retries=0,
        listeners=[_TrackingListener(tracker, loaded.spec, {}), board],
        folder_of=study.trial,
    )
    return desk, tracker.close


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--many", type=int, default=1000)
    parser.add_argument("--trial-s", type=float, default=20.0)
    parser.add_argument("--parts", nargs="+", default=["help", "start", "trials", "epochs", "busy"])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="see-tune-bench-") as name:
        parts: dict[str, Callable[[Path], None]] = {
            "help": lambda folder: bench_help(),
            "start": bench_start,
            "trials": lambda folder: bench_trials(folder, asked.trials),
            "epochs": lambda folder: bench_epochs(folder, asked.trials, asked.many),
            "busy": lambda folder: bench_busy(folder, asked.trial_s),
        }
        for part in asked.parts:
            folder = Path(name) / part
            folder.mkdir()
            parts[part](folder)


if __name__ == "__main__":
    main()
