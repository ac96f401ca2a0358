"""Studies on a Ray cluster, from outside it: submit one, read its log, have a command answered there.

    submit(order)      a Ray job <study>-<n>; its driver runs on the head, beside the storage
    follow(study)      what that driver prints
    ask(arguments)     the same `see-tune` command run there as a job of its own, for status, stop, list and doctor

A job's status is never asked how a study stands: the study's storage knows, and the command that is run there reads it.

An `Order` is a study that the cluster owes to someone. Its job keeps it in the home folder until the study has ended, so the
head that comes back after a death submits it again (`unfinished`), and the storage makes that exact.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shlex
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from see_tune.errors import ClusterError, StudyError
from see_tune.home import Home
from see_tune.studies import Until

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

ADDRESS = "http://127.0.0.1:8265"
ORDER_VARIABLE = "SEE_TUNE_ORDER"

_ANSWER = "Answer."  # how the ids of jobs that answer a question begin; a study's name has no capitals
_PREAMBLE = "Running entrypoint for job "
_POLL_S = 0.3
_ANSWERS_S = 15.0  # a busy head takes its time; what is no head answers something else at once
_HEAD_SETTLES_S = 180.0  # its jobs API answers some seconds before it can start a job
_NO_AGENT = "No available agent"
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_FAILED, _INTERRUPTED = 1, 130


@dataclass(frozen=True)
class Order:
    """A study to run on a cluster.

    yaml: the whole study as text, `--set` and the rest included. fresh: set an earlier study of the name aside, once.
    again: it has been submitted before, and was accepted then.
    """

    study: str
    yaml: str
    until: Until = "final"
    fresh: bool = False
    again: bool = False

    @classmethod
    def from_json(cls, text: str) -> Order:
        return cls(**json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))


# On the head: the orders of a home


def keep(order: Order, home: Home) -> Path:
    """Write an order down, and its study's file beside it; returns that file. An order written before is replaced."""
    home.orders.mkdir(parents=True, exist_ok=True)
    file = _order_file(home, order.study).with_suffix(".yaml")
    for path, text in ((file, order.yaml), (_order_file(home, order.study), replace(order, fresh=False, again=True).to_json())):
        temporary = path.with_suffix(f"{path.suffix}.tmp")
        temporary.write_text(text)
        temporary.replace(path)
    return file


def drop(study: str, home: Home) -> bool:
    """The study is owed to nobody any more; True where it was."""
    file, owed = _order_file(home, study), is_owed(study, home)
    for path in (file, file.with_suffix(".yaml")):
        path.unlink(missing_ok=True)
    return owed


def is_owed(study: str, home: Home) -> bool:
    """Whether the order of this study has neither ended nor been withdrawn."""
    return _order_file(home, study).is_file()


def unfinished(home: Home) -> tuple[Order, ...]:
    """The orders of this home whose studies have not ended."""
    return tuple(Order.from_json(file.read_text()) for file in sorted(home.orders.glob("*.json")))


def _order_file(home: Home, study: str) -> Path:
    return home.orders / f"{study}.json"


# From outside: the jobs API


class Cluster:
    """The jobs API of one cluster."""

    def __init__(self, address: str = ADDRESS, *, patience_s: float = 0) -> None:
        """Connect to ``http(s)://host:port``; `patience_s` is how long an absent cluster is waited for.

        Raises: ClusterError where nobody answers, or who answers refuses the token.
        """
        self.address = address.rstrip("/")
        self._client = _connect(self.address, patience_s)

    def submit(self, order: Order) -> str:
        """Start the study as a job, and return its id.

        Raises: StudyError while a job of the study is alive. ClusterError where the cluster cannot take it.
        """
        with self._answering():
            jobs = self._jobs_of(order.study)
            if alive := [number for number, job in jobs.items() if job.status not in _ENDED]:
                raise StudyError(
                    f"the study {order.study} runs on {self.address} already, as job {order.study}-{alive[0]}; look at it: "
                    f"see-tune status {order.study} --address {self.address}, or choose another name with --name"
                )
            identity = f"{order.study}-{max(jobs, default=0) + 1}"  # Ray refuses an id that it has seen
            return self._start("see-tune work", identity, {ORDER_VARIABLE: order.to_json()})

    def ask(self, arguments: Sequence[str]) -> tuple[str, int]:
        """Run ``see-tune ARGUMENTS`` on the head, and return what it printed and its exit code."""
        with self._answering():
            identity = self._start(shlex.join(["see-tune", *arguments]), f"{_ANSWER}{secrets.token_hex(8)}")
            job = self._ended(identity)
            output = _without_preamble(self._client.get_job_logs(identity))
            self._forget_answers(before=job)
        return output, self._exit_code(job)

    def log(self, study: str) -> str:
        """All that the study's last job has printed."""
        with self._answering():
            return _without_preamble(self._client.get_job_logs(self._last_job(study)))

    def follow(self, study: str, show: Callable[[str], None]) -> int:
        """Show what the study's last job has printed and prints, until it ends; returns its exit code."""

        async def tail(identity: str) -> None:
            begun = False
            async for text in self._client.tail_job_logs(identity):
                begun = begun or _PREAMBLE in text
                show(_without_preamble(text) if begun else "")

        with self._answering():
            identity = self._last_job(study)
            asyncio.run(tail(identity))
            return self._exit_code(self._ended(identity))

    def _start(self, entrypoint: str, identity: str, environment: Mapping[str, str] | None = None) -> str:
        """Start a job, as soon as the head can."""
        until = time.monotonic() + _HEAD_SETTLES_S
        while True:
            try:
                started: str = self._client.submit_job(
                    entrypoint=entrypoint, submission_id=identity, runtime_env={"env_vars": dict(environment or {})}
                )
                return started
            except RuntimeError as error:
                if _NO_AGENT not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(1)

    def _forget_answers(self, before: JobDetails) -> None:
        """Delete the jobs of earlier questions. The last one's stays: Ray looks after a job once a second, and where one that
        has just ended is gone it puts a nameless failure in its place."""
        for job in self._client.list_jobs():
            is_answer = (job.submission_id or "").startswith(_ANSWER) and job.status in _ENDED
            if is_answer and (job.end_time or 0) < (before.start_time or 0):
                with suppress(RuntimeError):  # someone else who asks did it meanwhile
                    self._client.delete_job(job.submission_id)

    def _ended(self, identity: str) -> JobDetails:
        """The job, as soon as it has ended."""
        while (job := self._client.get_job_info(identity)).status not in _ENDED:
            time.sleep(_POLL_S)
        return job

    def _exit_code(self, job: JobDetails) -> int:
        """What the job's command ended with; 1 where a signal killed it."""
        if job.status == "STOPPED":  # with Ray's own means; `see-tune stop` lets the driver end
            return _INTERRUPTED
        if job.driver_exit_code is None:
            raise ClusterError(
                f"{self.address} could not run {job.entrypoint} as job {job.submission_id}: {job.message}; look at its head's log"
            )
        return job.driver_exit_code if job.driver_exit_code >= 0 else _FAILED

    def _last_job(self, study: str) -> str:
        jobs = self._jobs_of(study)
        if not jobs:
            there = sorted({name for job in self._client.list_jobs() if (name := _study_of(job)[0])})
            raise StudyError(
                f"{self.address} has had no job of a study {study!r} since its head started; there: {', '.join(there) or 'none'}"
            )
        return f"{study}-{max(jobs)}"

    def _jobs_of(self, study: str) -> dict[int, JobDetails]:
        found: dict[int, JobDetails] = {}
        for job in self._client.list_jobs():
            name, number = _study_of(job)
            if name == study:
                found[number] = job
        return found

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """What the jobs API says in its own words, in ours."""
        try:
            yield
        except (RuntimeError, OSError) as error:
            raise ClusterError(
                f"{self.address} did not do what was asked: {error}; see whether its head is up: docker compose ps, and try again"
            ) from error


def _study_of(job: JobDetails) -> tuple[str, int]:
    """The study that a job was submitted for, and the number of the job; an empty name for a command's job."""
    name, _, number = (job.submission_id or "").rpartition("-")
    return (name, int(number)) if number.isdecimal() else ("", 0)


def _connect(address: str, patience_s: float) -> JobSubmissionClient:
    if not address.startswith(("http://", "https://")):
        raise ClusterError(
            f"{address!r} is no address of a jobs API; valid: http://HOST:PORT or https://HOST, as {ADDRESS}, where docker "
            f"compose publishes it"
        )
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise ClusterError(
            f"submitting needs ray's jobs client ({error}); install it: pip install 'see-tune[cluster]'"
        ) from error
    logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)
    until = time.monotonic() + patience_s
    while True:
        try:
            _ask_for_health(address)
            return JobSubmissionClient(address, verify=os.environ.get("REQUESTS_CA_BUNDLE") or True)
        except AuthenticationError as error:
            raise ClusterError(
                f"{address} lets nobody in without its token ({str(error).splitlines()[0].partition('. ')[0]}); valid: the token "
                f"of the cluster, as a file that you can read: RAY_AUTH_TOKEN_PATH=docker/secrets/ray_token"
            ) from error
        except (OSError, RuntimeError) as error:
            if time.monotonic() > until:
                raise ClusterError(
                    f"no cluster answers at {address}: {str(error).splitlines()[0]}; start one: docker compose up "
                    f"--detach --wait, or give its address: --address http://HOST:PORT"
                ) from error
            time.sleep(1)


def _ask_for_health(address: str) -> None:
    """Raises OSError where no head of a Ray cluster answers within seconds; the jobs client would wait for minutes, or blame
    the token. A head tells of its health without one."""
    trusted = ssl.create_default_context(cafile=os.environ.get("REQUESTS_CA_BUNDLE"))
    try:
        with urllib.request.urlopen(f"{address}/api/gcs_healthz", timeout=_ANSWERS_S, context=trusted) as answer:
            is_head = answer.read(100) == b"success"
    except urllib.error.HTTPError:
        is_head = False
    except urllib.error.URLError as error:
        raise OSError(error.reason) from error
    except (ValueError, HTTPException) as error:
        raise OSError(error) from error
    if not is_head:
        raise OSError("what listens there is no head of a Ray cluster, or one that is not well")


def _without_preamble(log: str) -> str:
    """A job's log without what Ray says before the command's own first line."""
    _, found, rest = log.partition(_PREAMBLE)
    return rest.partition("\n")[2] if found else log
