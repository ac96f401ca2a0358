"""Orders on disk, and the jobs API from outside: a small server plays it, that remembers what it was asked."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from see_tune.cli.app import main
from see_tune.cluster import ORDER_VARIABLE, Cluster, Order, drop, keep, unfinished
from see_tune.errors import ClusterError, StudyError
from see_tune.home import Home


def test_kept_order_is_owed_until_it_is_dropped(tmp_path: Path) -> None:
    home, order = Home(tmp_path), Order("cars", "study: cars\n", "search")

    file = keep(order, home)

    assert file.read_text() == "study: cars\n"
    assert unfinished(home) == (replace(order, again=True),)
    assert drop("cars", home)
    assert unfinished(home) == ()
    assert not drop("cars", home)


def test_order_that_is_submitted_again_does_not_set_the_study_aside_again(tmp_path: Path) -> None:
    keep(Order("cars", "study: cars\n", fresh=True), Home(tmp_path))

    assert [order.fresh for order in unfinished(Home(tmp_path))] == [False]


@dataclass
class Jobs:
    """A jobs API with these jobs (id -> status), behind this token."""

    jobs: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    submitted: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    address: str = ""
    settling: int = 0  # submissions that are still answered with an error
    exit_code: int | None = 2
    times: dict[str, tuple[int, int]] = field(default_factory=dict)  # id -> start and end; (1, 2), and (50, 60) if submitted here

    def fails(self, method: str, path: str) -> bool:
        self.settling -= (begins := method == "POST" and path == "/api/jobs/")
        return begins and self.settling >= 0

    def answer(self, method: str, path: str, body: bytes) -> Any:
        if path == "/api/version":
            return {"version": "4", "ray_version": "2.60.0", "ray_commit": ""}
        if path == "/api/jobs/" and method == "POST":
            self.submitted.append(json.loads(body))
            identity = self.submitted[-1]["submission_id"]
            self.jobs[identity], self.times[identity] = "SUCCEEDED", (50, 60)
            return {"job_id": identity, "submission_id": identity}
        if path == "/api/jobs/":
            return [self.details(identity) for identity in self.jobs]
        identity, _, rest = path.removeprefix("/api/jobs/").partition("/")
        if method == "DELETE":
            self.deleted.append(identity)
            return {"deleted": True}
        if rest == "logs":
            return {"logs": _log(identity)}
        return self.details(identity)

    def details(self, identity: str) -> dict[str, Any]:
        return {
            "type": "SUBMISSION",
            "submission_id": identity,
            "status": self.jobs[identity],
            "entrypoint": "x",
            "driver_exit_code": self.exit_code,
            "message": "its supervisor died",
            "start_time": self.times.get(identity, (1, 2))[0],
            "end_time": self.times.get(identity, (1, 2))[1],
        }


def _log(identity: str) -> str:
    return f"2026 INFO Runtime env is setting up.\nRunning entrypoint for job {identity}: x\ncars  done\n"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    api = Jobs()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _tail(self) -> None:
            """The log as the one message of a WebSocket (short: its length is one byte), and its end."""
            accepted = hashlib.sha1(f"{self.headers['Sec-WebSocket-Key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
            self.send_response(101)
            for name, value in (
                ("Upgrade", "websocket"),
                ("Connection", "Upgrade"),
                ("Sec-WebSocket-Accept", base64.b64encode(accepted).decode()),
            ):
                self.send_header(name, value)
            self.end_headers()
            text = _log(self.path.split("/")[3]).encode()
            self.wfile.write(bytes([0x81, len(text)]) + text + bytes([0x88, 2, 0x03, 0xE8]))
            self.close_connection = True

        def _answer(self) -> None:
            if self.path.endswith("/logs/tail"):
                self._tail()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            refused = api.token is not None and self.headers.get("Authorization") != f"Bearer {api.token}"
            status, text = 403, b"Unauthorized"
            if self.path == "/api/gcs_healthz":
                status, text = 200, b"success"
            elif api.fails(self.command, self.path):
                status, text = 500, b"No available agent to submit job, please try again later."
            elif not refused:
                status, text = 200, json.dumps(api.answer(self.command, self.path, body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None: ...

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.address = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    yield api
    server.shutdown()
    server.server_close()


def test_study_is_submitted_under_the_next_id_that_ray_has_not_seen(jobs: Jobs) -> None:
    jobs.jobs = {"cars-1": "FAILED", "cars-3": "STOPPED", "cars-2-7": "RUNNING", "raysubmit_x": "RUNNING"}
    order = Order("cars", "study: cars\n")

    assert Cluster(jobs.address).submit(order) == "cars-4"

    (job,) = jobs.submitted
    assert Order.from_json(job["runtime_env"]["env_vars"][ORDER_VARIABLE]) == order


def test_head_that_cannot_start_jobs_yet_is_waited_for(jobs: Jobs) -> None:
    jobs.settling = 2

    assert Cluster(jobs.address).submit(Order("cars", "")) == "cars-1"

    assert len(jobs.submitted) == 1


@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_study_whose_job_is_alive_is_not_submitted_again(jobs: Jobs, status: str) -> None:
    jobs.jobs = {"cars-1": status}

    with pytest.raises(StudyError, match=r"as job cars-1.*see-tune status cars"):
        Cluster(jobs.address).submit(Order("cars", ""))

    assert jobs.submitted == []


def test_command_is_answered_with_its_own_words_and_exit_code(jobs: Jobs) -> None:
    assert Cluster(jobs.address).ask(["status", "my study"]) == ("cars  done\n", 2)

    assert jobs.submitted[0]["entrypoint"] == "see-tune status 'my study'"


def test_answer_is_forgotten_with_a_later_one_and_nothing_else_is(jobs: Jobs) -> None:
    jobs.jobs = {"Answer.1": "SUCCEEDED", "Answer.2": "RUNNING", "answer-1": "SUCCEEDED", "raysubmit_1": "FAILED"}
    jobs.times |= {"Answer.3": (60, 70)}  # ended after the one that is asked now has begun: Ray may not know it yet
    jobs.jobs["Answer.3"] = "FAILED"

    Cluster(jobs.address).ask(["status", "cars"])

    assert jobs.deleted == ["Answer.1"]


@pytest.mark.parametrize(
    ("status", "exit_code", "expected"),
    [
        ("SUCCEEDED", 0, 0),
        ("FAILED", 1, 1),
        ("FAILED", 2, 2),
        ("FAILED", 130, 130),  # `see-tune stop`
        ("FAILED", -9, 1),  # killed
        ("STOPPED", None, 130),  # `ray job stop`
    ],
)
def test_who_follows_a_study_ends_as_it_did(
    jobs: Jobs, capsys: pytest.CaptureFixture[str], status: str, exit_code: int | None, expected: int
) -> None:
    jobs.jobs, jobs.exit_code = {"cars-1": "SUCCEEDED", "cars-2": status}, exit_code

    assert main(["logs", "cars", "--follow", "--address", jobs.address]) == expected

    assert capsys.readouterr().out == "cars  done\n"


def test_job_that_ended_without_an_exit_code_is_an_error_in_rays_words(jobs: Jobs) -> None:
    jobs.jobs, jobs.exit_code = {"cars-1": "FAILED"}, None

    with pytest.raises(ClusterError, match=r"could not run x as job cars-1: its supervisor died"):
        Cluster(jobs.address).follow("cars", print)


def test_study_that_was_never_submitted_has_no_log(jobs: Jobs) -> None:
    jobs.jobs = {"sop-1": "RUNNING", "sop-2": "RUNNING", "raysubmit_7gZ": "RUNNING"}

    with pytest.raises(StudyError, match=r"no job of a study 'cars'.*there: sop$"):
        Cluster(jobs.address).log("cars")


@pytest.mark.parametrize("address", ["127.0.0.1:8265", "ray://head:10001", "auto"])
def test_address_that_is_no_jobs_api_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match=r"valid: http://HOST:PORT"):
        Cluster(address)


def test_server_that_is_no_ray_is_not_taken_for_one_that_refuses_the_token() -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(401)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ClusterError, match="what listens there is no head of a Ray cluster"):
            Cluster(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_absent_cluster_is_an_error_with_the_way_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")

    with pytest.raises(ClusterError, match=r"no cluster answers at http://127\.0\.0\.1:9.*docker compose up"):
        Cluster("http://127.0.0.1:9")
