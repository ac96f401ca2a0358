"""Ray Tune schedules `run_trial`, which it is handed as a function and knows nothing about.

    start_engine(...)  a local Ray on loopback, or a connection to a cluster
    run(desk, ...)     one Tuner for a whole session: the workers stay warm from the first trial to the last final run

A worker that is lost (killed, its node gone) is the desk's to retry: the row is handed out again and goes on from its own
checkpoint, which lies in a folder that every node sees. Tune's own retries are off: it takes a worker that dies while two of
its calls are out for two failures, and gives the trial up at the second, whatever `max_failures` says (Ray 2.60). A trial
that failed by its own doing returns its result like any other.
"""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ray
from ray import tune

from see_tune.search.searcher import Desk, LedgerSearcher, LedgerStopper
from see_tune.search.worker import RunTrial, make_trainable


@dataclass(frozen=True)
class Resources:
    """What one trial gets, and how many run side by side."""

    cpus: int
    gpus: float
    slots: int


@contextmanager
def start_engine(*, cpus: int, gpus: int, log_file: Path) -> Iterator[None]:
    """A Ray of our own on loopback, stopped and swept up at the end.

    Its sockets need a short path, so its session folder lies under the system's temporary folder, and is removed.
    """
    session = Path(tempfile.mkdtemp(prefix="see-tune-"))
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address="local",
            num_cpus=cpus,
            num_gpus=gpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=128 * 2**20,  # paths travel, never data
            _node_ip_address="127.0.0.1",
            _temp_dir=str(session),
        )
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray takes it for itself, and ends the process in the middle of a trial
        _send_log_to(log_file)
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(session, ignore_errors=True)


def _send_log_to(log_file: Path) -> None:
    """Ray's Python log goes to a file: a terminal line of the engine's own helps nobody who watches a study."""
    handler = logging.FileHandler(log_file, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False


def run(desk: Desk, run_trial: RunTrial, resources: Resources, *, results_folder: Path) -> None:
    """Run the desk's rows until it is finished or stopping; every row that was out is closed when this returns.

    Raises what the desk met while it planned a phase.
    """
    tuner = tune.Tuner(
        tune.with_resources(make_trainable(run_trial), {"cpu": resources.cpus, "gpu": resources.gpus}),
        tune_config=tune.TuneConfig(
            search_alg=LedgerSearcher(desk),
            num_samples=-1,
            reuse_actors=True,
            trial_name_creator=lambda trial: trial.config["lineage"],
            trial_dirname_creator=lambda trial: f"{trial.config['lineage']}-{trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            name="engine",
            storage_path=str(results_folder),
            stop=LedgerStopper(desk),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=0),  # the desk hands a lost row out again
        ),
    )
    try:
        tuner.fit()
    finally:
        desk.close_all()
        shutil.rmtree(results_folder, ignore_errors=True)
    if desk.error is not None:
        raise desk.error
