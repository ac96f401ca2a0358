"""Ray Tune schedules `run_trial`, which it is handed as a function and knows nothing about.

One Tuner runs a whole session: the workers stay warm from the first trial to the last final run.

A worker that is lost (killed, its node gone) is the desk's to retry: the row is handed out again and goes on from its own
checkpoint, which lies in a folder that every node sees. Tune's own retries are off: it takes a worker that dies while two of
its calls are out for two failures, and gives the trial up at the second, whatever `max_failures` says (Ray 2.60). A trial
that failed by its own doing returns its result like any other.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ray import tune

from see_tune.search.desk import Desk
from see_tune.search.nodes import Resources
from see_tune.search.searcher import LedgerSearcher, LedgerStopper
from see_tune.search.worker import RunTrial, ask_for, make_trainable


class _EngineLog(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drop what a full disk does not take; Python would print it, with two tracebacks, where the study is watched."""


@contextmanager
def log_to(log_file: Path) -> Iterator[None]:
    """Ray's Python log goes to a file: a terminal line of the engine's own helps nobody who watches a study."""
    handler = _EngineLog(log_file, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    loggers = [logging.getLogger(name) for name in ("ray", "ray.tune", "ray.train", "ray.data")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        handler.close()


def run(
    desk: Desk,
    run_trial: RunTrial,
    resources: Resources,
    *,
    results_folder: Path,
    count_slots: Callable[[], int] | None = None,
) -> None:
    """Run the desk's rows until it is finished or stopping; every row that was out is closed when this returns.

    count_slots: how many rows may be out now, where that changes: nodes join a cluster and leave it.

    Raises what the desk met while it planned a phase.
    """
    tuner = tune.Tuner(
        tune.with_resources(make_trainable(run_trial), ask_for(resources.cpus, resources.gpus)),
        tune_config=tune.TuneConfig(
            search_alg=LedgerSearcher(desk, count_slots),
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
