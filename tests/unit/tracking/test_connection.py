import base64
import multiprocessing
import socket
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from see_tune.errors import SpecError, TrackingError, TrackingServerError
from see_tune.home import Home
from see_tune.tracking.connection import answers, connect, reached, store_uri


def open_store(root: Path, number: int) -> str:
    """What each of eight drivers does that start together; runs in a process of its own."""
    client = connect(Home(root), "local")
    return client.create_experiment(f"see-tune/{number}", (root / "artifacts").as_uri())


def test_eight_processes_may_open_a_fresh_home_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow", "mlflow.store.tracking.sqlalchemy_store"])  # import once, not eight times
    with context.Pool(8) as pool:
        experiments = pool.starmap(open_store, [(tmp_path, number) for number in range(8)], chunksize=1)
    assert len(set(experiments)) == 8
    assert len(connect(Home(tmp_path), "local").search_experiments()) == 9  # MLflow's own "Default" too


def test_a_store_whose_creation_was_killed_is_created_anew(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with sqlite3.connect(tmp_path / "mlflow.db.new") as unfinished:
        unfinished.execute("CREATE TABLE _alembic_tmp_tags (key TEXT)")
    unfinished.close()
    assert len(connect(home, "local").search_experiments()) == 1
    assert sorted(path.name for path in tmp_path.glob("mlflow.db*")) == ["mlflow.db"]


def set_schema(home: Home, revision: str) -> None:
    with sqlite3.connect(home.mlflow_db) as database:
        database.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    database.close()


def test_a_store_of_an_older_mlflow_is_migrated_and_of_a_newer_one_is_refused(tmp_path: Path) -> None:
    from alembic import command
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config
    from mlflow.store.tracking.dbmodels.initial_models import Base
    from sqlalchemy import create_engine

    home = Home(tmp_path)
    config = _get_alembic_config(store_uri(home, "local"))
    revisions = ScriptDirectory.from_config(config)
    newest = revisions.get_current_head()
    Base.metadata.create_all(create_engine(store_uri(home, "local")))
    command.upgrade(config, revisions.get_revision(newest).down_revision)

    assert connect(home, "local").search_experiments()[0].name == "Default"
    with sqlite3.connect(home.mlflow_db) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [(newest,)]
    database.close()

    set_schema(home, "from_the_future")
    with pytest.raises(TrackingError, match="install the newer mlflow"):
        connect(home, "local")


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database, " * 100)
    with pytest.raises(TrackingError, match=r"mlflow\.db cannot be used"):
        connect(Home(tmp_path), "local")


def test_a_server_that_is_away_shows_at_the_first_call_and_not_before(tmp_path: Path) -> None:
    assert connect(Home(tmp_path), "http://127.0.0.1:9").tracking_uri == "http://127.0.0.1:9"
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_away_is_the_users_to_hear_of_whatever_was_asked(tmp_path: Path) -> None:
    with (
        pytest.raises(TrackingServerError, match=r"http://127\.0\.0\.1:9 is away, or refuses: .*Connection refused\. Start it"),
        reached(Home(tmp_path), "http://127.0.0.1:9") as client,
    ):
        client.search_registered_models()


def test_a_server_that_does_not_answer_in_time_is_said_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TrackingServerError, match="Read timed out"):
            answers(Home(tmp_path), uri)


def test_a_server_that_is_no_mlflow_or_wants_a_login_is_said_to_refuse(tmp_path: Path) -> None:
    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(int(self.path.split("/")[1]))

        def log_message(self, format: str, *arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for code in (401, 404):
            with pytest.raises(TrackingServerError, match=f"is away, or refuses: .*{code}.*MLFLOW_TRACKING_USERNAME"):
                answers(Home(tmp_path), f"http://127.0.0.1:{server.server_port}/{code}")
        server.shutdown()


def ask_guarded_server(home: Home) -> str:
    """The `Authorization` that a server behind a login is sent."""
    sent: list[str] = []

    class Guard(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(self.headers.get("Authorization", ""))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Guard) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        connect(home, f"http://127.0.0.1:{server.server_port}").search_experiments()
        thread.join()
    return base64.b64decode(sent[0].removeprefix("Basic ")).decode()


def test_login_of_a_server_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "of-the-variable")
    assert ask_guarded_server(Home(tmp_path)) == "me:of-the-variable"
    (tmp_path / "password").write_text("of-the-file\n")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD_FILE", str(tmp_path / "password"))
    assert ask_guarded_server(Home(tmp_path)) == "me:of-the-file"


def test_the_environments_server_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example")
    assert store_uri(Home(tmp_path), "auto") == "https://mlflow.example"
    assert store_uri(Home(tmp_path), "local") == f"sqlite:///{tmp_path}/mlflow.db"


@pytest.mark.parametrize("uri", ["https://me:secret@host", "databricks"])
def test_server_that_cannot_be_meant_is_refused(tmp_path: Path, uri: str) -> None:
    with pytest.raises(SpecError) as caught:
        connect(Home(tmp_path), uri)
    assert "secret" not in str(caught.value)
