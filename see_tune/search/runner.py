"""Ray Tune schedules `run_trial`, which it is handed as a function and knows nothing about.

    Engine(...)        a local Ray on loopback, for this study alone
    join_cluster(...)  or a connection to a Ray that runs already
    run(desk, ...)     one Tuner for a whole session: the workers stay warm from the first trial to the last final run

A worker that is lost (killed, its node gone) is the desk's to retry: the row is handed out again and goes on from its own
checkpoint, which lies in a folder that every node sees. Tune's own retries are off: it takes a worker that dies while two of
its calls are out for two failures, and gives the trial up at the second, whatever `max_failures` says (Ray 2.60). A trial
that failed by its own doing returns its result like any other.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import ray
from ray import tune
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker
from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
from ray._private.services import get_ray_address_from_environment
from ray.exceptions import AuthenticationError, RayError

from see_tune.errors import StudyError
from see_tune.search.engine_folder import engine_folder
from see_tune.search.nodes import Resources
from see_tune.search.searcher import Desk, LedgerSearcher, LedgerStopper
from see_tune.search.worker import RunTrial, ask_for, make_trainable

_ANSWERS_S = 15.0  # a busy head takes its time; what is no head answers something else at once


class Engine:
    """A Ray of our own on loopback, which starts while its caller goes on: most of its seconds are spent waiting.

        with Engine(cpus=2, gpus=0) as engine:
            ...            # whatever else the start needs
            engine.wait()  # Ray is there

    A thread of its own starts and ends it, and lives as long as it does: the kernel ends Ray's processes with the thread that
    began them. At the end they are gone, and so is their folder.
    """

    def __init__(self, *, cpus: int, gpus: int) -> None:
        self._cpus = cpus
        self._gpus = gpus
        self._started, self._over = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._folder: Path | None = None
        self._thread = threading.Thread(target=self._live, name="engine", daemon=True)

    def __enter__(self) -> Engine:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def wait(self) -> None:
        """Until Ray is there. Raises what kept it from starting."""
        self._started.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def starting(self) -> bool:
        """Whether Ray is not there yet; its start cannot be cut short."""
        return not self._started.is_set()

    def end(self) -> None:
        """Until Ray is gone; again, it does nothing. Interrupted, it ends Ray's processes as they are."""
        self._over.set()
        try:
            self._thread.join()
        except KeyboardInterrupt:
            _kill(_below(os.getpid()))
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _live(self) -> None:
        try:
            with engine_folder() as self._folder:
                try:
                    self._start(self._folder)
                    self._started.set()
                    self._over.wait()
                finally:
                    _end_engine()
        except BaseException as error:  # told to whoever waits
            self._failure = error
        finally:
            self._started.set()

    def _start(self, folder: Path) -> None:
        with _own_sigterm(), _deaf_children():
            ray.init(
                address="local",
                num_cpus=self._cpus,
                num_gpus=self._gpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.CRITICAL,  # what keeps it from starting is raised
                object_store_memory=128 * 2**20,  # paths travel, never data
                _node_ip_address="127.0.0.1",
                _temp_dir=str(folder),
            )


@contextmanager
def join_cluster(address: str) -> Iterator[None]:
    """A connection to a Ray that runs already, and goes on running after it.

    address: ``auto`` (RAY_ADDRESS, else the Ray that runs on this machine) or ``host:port`` of the head. Where it asks for a
    token, that is RAY_AUTH_TOKEN's or the one in the file that RAY_AUTH_TOKEN_PATH names.

    Raises: StudyError where there is none, or it refuses.
    """
    try:
        found = _find_cluster(address)
        with _own_sigterm():
            ray.init(address=found, log_to_driver=False, logging_level=logging.ERROR)
    except AuthenticationError as error:
        raise StudyError(
            f"--address {address}: the Ray cluster there refuses the token ({str(error).partition('. ')[0]}); valid: the "
            f"cluster's own, as a file that you can read: RAY_AUTH_TOKEN_PATH=FILE"
        ) from None
    except (OSError, RuntimeError, ValueError, RayError, SystemExit) as error:
        raise StudyError(
            f"--address {address}: no Ray cluster can be joined there: {error}. Valid: auto (RAY_ADDRESS, or the Ray on this "
            f"machine) or HOST:PORT of a head of Ray {ray.__version__}; its token goes into RAY_AUTH_TOKEN_PATH. "
            f"Without --address a study runs on this machine alone"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _find_cluster(address: str) -> str:
    """``host:port`` of the head, which answers and lets us in: Ray would try for most of a minute, and talk meanwhile."""
    found: str = get_ray_address_from_environment(address, None) if address == "auto" else address
    if "://" in found:
        raise ValueError("trials are not scheduled through a Ray client; give the head's own HOST:PORT, from a machine beside it")
    host, _, port = found.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"{found!r} is no HOST:PORT")
    with socket.create_connection((host, int(port)), timeout=_ANSWERS_S) as connection:
        if not _speaks_grpc(connection):
            raise ValueError("what listens there is something else")
    ensure_token_if_auth_enabled(create_token_if_missing=False)
    with _muted():
        ray._raylet.GcsClient(address=found)
    return found


def _speaks_grpc(connection: socket.socket) -> bool:
    """Whether the greeting of HTTP/2, which is what a head speaks, is answered by one (RFC 9113: a SETTINGS frame each)."""
    connection.settimeout(_ANSWERS_S)
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    try:
        return connection.recv(9)[3:4] == b"\x04"
    except (TimeoutError, ConnectionError):
        return False


@contextmanager
def _muted() -> Iterator[None]:
    """Ray's C++ writes to file descriptor 2 itself what its exception says as well."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray takes SIGTERM for itself, and would end the process in the middle of a trial or of Ray's own start."""
    theirs, ray_utils.set_sigterm_handler = ray_utils.set_sigterm_handler, lambda handler: None
    try:
        yield
    finally:
        ray_utils.set_sigterm_handler = theirs


@contextmanager
def _deaf_children() -> Iterator[None]:
    """What is started here, and whatever that starts, does not hear SIGTERM and SIGHUP; a mask is inherited, as no handler is.

    Both are sent to more than the driver: to its process group by `timeout` and a terminal that closes, to every process of
    the unit or job by systemd and slurm. The driver stops the study when it hears them; without an engine it could not.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_engine() -> None:
    """Disconnect, then SIGKILL: Ray would send each of its processes SIGTERM, which they do not hear, and wait for a second.

    Those below the raylet go with it; two of them would stay for a minute, to tell the dead head of the raylet's end.
    """
    node, ray_worker._global_node = ray_worker._global_node, None
    ray.shutdown()
    if node is None:  # it had not started
        return
    below = [pid for _, process in node.live_processes() for pid in _below(process.pid)]
    node.kill_all_processes(check_alive=False, allow_graceful=False)
    _kill(below)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _below(pid: int) -> Iterator[int]:
    """Every process below `pid`, by the parents that the kernel names."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for above in found:
        found += [child for child, parent in parents.items() if parent == above]
    yield from found[1:]


@contextmanager
def log_to(log_file: Path) -> Iterator[None]:
    """Ray's Python log goes to a file: a terminal line of the engine's own helps nobody who watches a study."""
    handler = logging.FileHandler(log_file, delay=True)
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
