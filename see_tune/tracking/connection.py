"""The one way to MLflow: a sqlite file in the home folder (``local``), or a server (``http://host:port``).

mlflow's import takes seconds, so it happens inside `connect`, in whichever thread asks first. Before it, the process is
told what mlflow reads from its environment: no telemetry, no retries of its own (seven of them would hold a call for four
minutes; the spool is what retries here), no progress bars and no links on the terminal. What the user has set stands.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock

from see_tune.addresses import LOCAL, TRACKING_PASSWORD, TRACKING_VARIABLE, find_tracking, secret
from see_tune.errors import TrackingError, TrackingServerError
from see_tune.home import Home

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT_PREFIX = "see-tune/"  # before what the dataset is called

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_UV_AUTO_DETECT": "false",
}
_LOGGERS = ("mlflow", "alembic", "urllib3")
_SHOWN_CHARACTERS = 200


def store_uri(home: Home, uri: str) -> str:
    """What MLflow itself calls the store that `uri` names; for ``mlflow.set_tracking_uri`` in a user's own script."""
    server = find_tracking(uri)
    return f"sqlite:///{home.mlflow_db}" if server == LOCAL else server


def connect(home: Home, uri: str) -> MlflowClient:
    """A client of the store that `uri` names; the local one is created, or migrated to this mlflow, where it must be.

    A server is not asked anything yet: one that is away shows at the first call. Its user and password are those of
    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, which mlflow reads, or of MLFLOW_TRACKING_PASSWORD_FILE.

    Raises:
        TrackingError: the local file is no database that this mlflow can use.
        SpecError: the address, or the file with the password, is none that can be used.
    """
    silence()
    from mlflow import MlflowClient

    if find_tracking(uri) == LOCAL:
        _make_local_store(home)
    elif password := secret(TRACKING_PASSWORD):
        os.environ[TRACKING_PASSWORD] = password
    return MlflowClient(tracking_uri=store_uri(home, uri), registry_uri=store_uri(home, uri))


@contextmanager
def reached(home: Home, uri: str) -> Iterator[MlflowClient]:
    """`connect` for a command that cannot go on without an answer, whatever it asks meanwhile.

    Raises:
        TrackingServerError: the server is away, refuses the login, or is no MLflow.
        TrackingError: the local file fails.
        As `connect` otherwise.
    """
    client = connect(home, uri)
    from mlflow.exceptions import MlflowException
    from requests import RequestException

    try:
        yield client
    except (MlflowException, RequestException) as error:
        if (server := find_tracking(uri)) == LOCAL:
            raise TrackingError(f"{store_uri(home, uri)} failed: {reason(error)}; another home: --home DIR") from error
        raise TrackingServerError(
            f"the tracking server {server} is away, or refuses: {reason(error)}. Start it, name another (--tracking or "
            f"{TRACKING_VARIABLE}; local: the home's own), or give its login: MLFLOW_TRACKING_USERNAME with "
            f"{TRACKING_PASSWORD} or {TRACKING_PASSWORD}_FILE, or ~/.mlflow/credentials"
        ) from error


def answers(home: Home, uri: str) -> str:
    """What a tracking server says to the login that would be used, in a word or two.

    Raises: as `reached`.
    """
    with reached(home, uri) as client:
        client.search_experiments(max_results=1)
    return "reached, and lets us in"


def reason(error: Exception) -> str:
    """In a few words, what the network or the server said, without mlflow's account of its call."""
    from requests import ConnectionError

    cause = error if isinstance(error, ConnectionError) else error.__context__
    if isinstance(cause, ConnectionError):
        return str(getattr(cause.args[0], "reason", cause)).rpartition(": ")[2].rstrip(".")
    return " ".join(str(error).split())[:_SHOWN_CHARACTERS]


def silence() -> None:
    """Keep mlflow off the network and off the terminal; its log lines go to the handlers the program has, if it has any."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            logger.addHandler(logging.NullHandler())  # without any handler, Python prints warnings on stderr
    warnings.filterwarnings("ignore", module=r"(mlflow|alembic)\b")


def _make_local_store(home: Home) -> None:
    """Create or migrate the sqlite file, one process at a time: eight that open a fresh file at once would break it.

    It is created beside its place: a process that is killed in the middle leaves tables which no later start can make sense of.
    """
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    home.root.mkdir(parents=True, exist_ok=True)
    with FileLock(home.mlflow_lock):
        database, artifacts = store_uri(home, LOCAL), home.mlflow_artifacts.as_uri()
        try:
            if home.mlflow_db.exists():
                _open_or_migrate(database, artifacts)
            else:
                unfinished = home.mlflow_db.with_name(f"{home.mlflow_db.name}.new")
                unfinished.unlink(missing_ok=True)
                _open_or_migrate(f"{database}.new", artifacts)
                unfinished.replace(home.mlflow_db)
        except (MlflowException, SQLAlchemyError, CommandError) as error:
            raise TrackingError(
                f"{home.mlflow_db} cannot be used by this mlflow: {error}; a file that an mlflow 3 wrote can; "
                f"move it away to start a new one, or install the newer mlflow that wrote it"
            ) from error


def _open_or_migrate(database: str, artifacts: str) -> None:
    from mlflow.db import upgrade
    from mlflow.exceptions import MlflowException
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    try:
        SqlAlchemyStore(database, artifacts)  # creates what is not there yet
    except MlflowException:  # the schema of another mlflow
        upgrade.callback(database)
        SqlAlchemyStore(database, artifacts)
