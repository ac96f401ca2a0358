import multiprocessing
import sqlite3
import sys
from pathlib import Path

import pytest

from see_tune.errors import SpecError, StudyError, TrackingError
from see_tune.home import Home
from see_tune.tracking.connection import connect, store_uri, ui_command


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


def test_the_ui_serves_this_home_to_this_machine_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.mlflow_db.touch()
    command = ui_command(home, port=5001)
    assert command[0] == "env"
    assert "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false" in command
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "5001"
    assert command[command.index("--backend-store-uri") + 1] == f"sqlite:///{tmp_path}/mlflow.db"
    assert sys.executable in command


def test_the_ui_of_an_empty_home_or_of_a_server_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="see-tune run"):
        ui_command(Home(tmp_path))
    with pytest.raises(SpecError, match="open http://host:5000"):
        ui_command(Home(tmp_path), "http://host:5000")
