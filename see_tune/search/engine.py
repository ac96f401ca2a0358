"""Ray itself: one of our own on this machine, or a connection to a cluster's.

    Engine(...)        a local Ray on loopback, for this study alone
    join_cluster(...)  or a connection to a Ray that runs already

Imported before anything else that a study needs: Ray takes seconds to start, and starts beside the rest.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import ray
from ray._private import parameter as ray_parameter
from ray._private import services as ray_services
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker
from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
from ray._private.services import get_ray_address_from_environment
from ray.exceptions import AuthenticationError, RayError

from see_tune.errors import EngineLostError, StudyError
from see_tune.search.engine_folder import engine_folder

_ANSWERS_S = 15.0  # a busy head takes its time; what is no head answers something else at once
_VITAL = {"raylet", "gcs_server"}  # without the others trials go on
_LOOK_S = 0.5
_DEATH_S = 3.0  # from an agent's end to that of its raylet, which then ends itself


class Engine:
    """A Ray of our own on loopback, which starts while its caller goes on: most of its seconds are spent waiting.

        with Engine(cpus=2, gpus=0) as engine:
            ...            # whatever else the start needs
            engine.wait()  # Ray is there

    A thread of its own starts and ends it, and lives as long as it does: the kernel ends Ray's processes with the thread that
    began them. At the end they are gone, and so is their folder.

    Where Ray ends before (killed, out of memory), Tune would wait for it for ever, or be ended by Ray's C++ with the whole
    process: so the thread looks after it as well.
    """

    def __init__(self, *, cpus: int, gpus: int) -> None:
        self._cpus = cpus
        self._gpus = gpus
        self._started, self._over, self._lost = threading.Event(), threading.Event(), threading.Event()
        self._on_loss: Callable[[EngineLostError], None] = lambda error: None
        self._failure: BaseException | None = None
        self._folder: Path | None = None
        self._thread = threading.Thread(target=self._live, name="engine", daemon=True)
        self._used = ExitStack()

    def __enter__(self) -> Engine:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def wait(self, on_loss: Callable[[EngineLostError], None]) -> None:
        """Until Ray is there. Raises what kept it from starting, or ended it since.

        on_loss: told, in the engine's thread, when Ray has ended before `end`, which is to be called soon then.
        """
        self._on_loss = on_loss
        self._started.wait()
        if self._failure is not None:
            raise self._failure
        self._used.enter_context(_inherited_environment())

    @property
    def starting(self) -> bool:
        """Whether Ray is not there yet; its start cannot be cut short."""
        return not self._started.is_set()

    def is_lost(self) -> bool:
        """Whether Ray has ended, or does so just now: the silence of a worker is heard before that of its Ray."""
        return self._lost.wait(_DEATH_S)

    def end(self) -> None:
        """Until Ray is gone; again, it does nothing. Interrupted, it ends Ray's processes as they are."""
        self._used.close()
        self._over.set()
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self._end_at_once()
            raise

    def _end_at_once(self) -> None:
        """Nothing of Ray is left that anybody could talk to, nor is anybody to try when the process ends."""
        _mute_ray_threads()
        atexit.unregister(ray_worker.shutdown)
        if registry := sys.modules.get("ray.tune.registry"):
            atexit.unregister(registry._unregister_all)
        _kill(_below(os.getpid()))
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _live(self) -> None:
        try:
            with engine_folder() as self._folder:
                try:
                    self._start(self._folder)
                    self._started.set()
                    self._look_after()
                finally:
                    _end_engine()
        except BaseException as error:  # told to whoever waits
            self._failure = error
        finally:
            self._started.set()

    def _look_after(self) -> None:
        while not self._over.wait(_LOOK_S):
            if ended := _VITAL & {kind for kind, _ in ray_worker._global_node.dead_processes()}:
                error = EngineLostError(
                    f"Ray has ended in the middle (its {' and '.join(sorted(ended))}: killed, or out of memory?); "
                    "what was out goes back into the queue, and the same command continues"
                )
                if "gcs_server" in ended:
                    self._end_process(error)
                if not self._lost.is_set():
                    self._failure = error
                    self._lost.set()
                    self._on_loss(error)

    def _end_process(self, error: EngineLostError) -> NoReturn:
        """Whoever asks Ray anything without its head waits in C++, which nothing interrupts, and which ends the process itself
        after a minute, and leaves the rest of Ray behind. A killed driver's study is continued like any other."""
        print(f"see-tune: {error}", file=sys.stderr, flush=True)
        self._end_at_once()
        os._exit(error.exit_code)

    def _start(self, folder: Path) -> None:
        with _own_sigterm(), _deaf_children(), _alone():
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
def _inherited_environment() -> Iterator[None]:
    """Tune sets a few variables for each actor, and for an actor with an environment of its own Ray starts a process anew. The
    workers of this Ray have them from this process, so that Tune may take the ones that Ray has started already: a second less.
    """
    from ray.tune.execution import class_cache  # Tune is imported while Ray starts

    before = class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE
    class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE = {}, frozenset()
    try:
        yield
    finally:
        class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE = before


@contextmanager
def _alone() -> Iterator[None]:
    """Without the processes of Ray's that a cluster needs and one machine does not: nothing is there to be scaled, a worker's log
    is read where it lies, and nobody asks for jobs over HTTP. On a small machine they cost two seconds of the start."""
    before = ray_parameter.RayParams, ray_services.start_api_server
    ray_parameter.RayParams = partial(before[0], no_monitor=True, include_log_monitor=False)
    ray_services.start_api_server = lambda *arguments, **named: ("", None)
    try:
        yield
    finally:
        ray_parameter.RayParams, ray_services.start_api_server = before


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
    _kill(process.pid for _, process in node.live_processes())
    node.kill_all_processes(check_alive=False, allow_graceful=False)  # they are waited for


def _mute_ray_threads() -> None:
    """Those of Ray's threads that listen to it would print a traceback each when it is killed below them."""
    before = threading.excepthook

    def hook(failure: threading.ExceptHookArgs) -> None:
        if failure.thread is None or not failure.thread.name.startswith("ray_"):
            before(failure)

    threading.excepthook = hook


def _kill(pids: Iterable[int]) -> None:
    """With everything below them; stopped first, so that none of them begins another meanwhile."""
    found, roots = set[int](), set(pids)
    while new := roots.union(*map(_below, roots)) - found:
        _send(signal.SIGSTOP, new)
        found |= new
    _send(signal.SIGKILL, found)


def _send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


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
