"""The Optuna storage of a study, wherever it lies: sqlite or a journal in the study's folder, or a Postgres server.

    open_storage   for the driver, which holds the study's lock: created where it is absent, and patient
    reach          whether there is one
    view_storage   for everyone who looks: nothing is created, migrated or locked, and a driver may be writing

A server that goes away for a while (a restart, a network that flickers) or a disk that is full costs a pause and no trial:
each operation is tried again for `PATIENCE_S`. A commit whose answer was lost on the way may have happened, so an operation
that creates or closes a trial is not repeated blindly; one driver writes a study, and what is found done is its own doing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Connection, create_engine, func, select
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from see_tune.addresses import JOURNAL, LOCAL, STORAGE_PASSWORD, StorageAddress, secret
from see_tune.errors import StorageAwayError, StudyError
from see_tune.home import StudyFolder

PATIENCE_S = 120.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_OURS = (ProgrammingError, IntegrityError, DataError, NotSupportedError)
_MAKING_TABLES = 5_337_862  # any number: the key of the lock under which a fresh database gets its tables
# A server that vanishes without a word (its host cut off) is noticed after some 10 s, not after the kernel's quarter of an hour.
_CONNECTION = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


def open_storage(folder: StudyFolder, address: StorageAddress) -> PatientStorage:
    """The storage of a study to write to, created if it does not exist; one for all its ledgers.

    Raises: StudyError where a server cannot be reached, refuses, or no longer has what it had.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if address.kind == LOCAL:
        return PatientStorage(_cached(RDBStorage(f"sqlite:///{folder.optuna_db}")))
    if address.kind == JOURNAL:
        return PatientStorage(JournalStorage(_OneWriterJournal(folder.journal_file)))
    with _translated(address), _alone(address):
        storage = _cached(RDBStorage(address.kind, engine_kwargs={"pool_pre_ping": True, "connect_args": _connection()}))
    if address.begun and f"{address.name}/final" not in optuna.get_all_study_names(storage):
        raise StudyError(
            f"{address.kind} has no trials of {folder.root.name} (as {address.name}), which were begun there; "
            f"restore that database, or set the study aside and begin anew (--fresh)"
        )
    return PatientStorage(storage)


def view_storage(folder: StudyFolder, address: StorageAddress) -> BaseStorage:
    """The storage of a study that was begun, only to read.

    Raises: StudyError where a server cannot be reached or refuses.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if address.kind == LOCAL:
        url = f"sqlite:///{folder.optuna_db.as_uri()}?mode=ro&uri=true"
        return RDBStorage(url, skip_compatibility_check=True, skip_table_creation=True)
    if address.kind == JOURNAL:
        return JournalStorage(JournalFileBackend(str(folder.journal_file)))
    with _translated(address):
        arguments = {**_connection(), "options": "-c default_transaction_read_only=on"}
        storage = RDBStorage(
            address.kind, engine_kwargs={"connect_args": arguments}, skip_compatibility_check=True, skip_table_creation=True
        )
        with storage.engine.connect():
            return storage


def reach_storage(address: StorageAddress) -> None:
    """See that a server answers and lets us in; a database that nothing was written to yet may be empty.

    Raises: StudyError where it cannot be reached or refuses.
    """
    with _translated(address), _connect(address):
        pass


def _cached(storage: RDBStorage) -> BaseStorage:
    cached: BaseStorage = optuna.storages._CachedStorage(storage)
    return cached


def _connection() -> dict[str, Any]:
    password = secret(STORAGE_PASSWORD)  # beside the address and never in it; without one libpq looks for PGPASSWORD, PGPASSFILE
    return {**_CONNECTION, **({"password": password} if password else {})}


def _connect(address: StorageAddress) -> Connection:
    return create_engine(address.kind, connect_args=_connection(), poolclass=NullPool).connect()


@contextmanager
def _alone(address: StorageAddress) -> Iterator[None]:
    """Hold the lock under which tables are made: of two studies that start on a fresh database, one would fail."""
    with _connect(address) as connection:
        connection.execute(select(func.pg_advisory_lock(_MAKING_TABLES)))
        yield  # the lock goes with the connection


@contextmanager
def _translated(address: StorageAddress) -> Iterator[None]:
    """What goes wrong while a server is opened, as an error for people."""
    try:
        yield
    except ImportError as error:
        raise StudyError(
            f"storage: {address.kind} needs psycopg ({error}); install it: pip install 'see-tune[cluster]'"
        ) from error
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, RuntimeError) as error:
        raise StudyError(
            f"the storage {address.kind} cannot be used: {_cause(error)}. Is the server up, and are user, password and database "
            f"right? The password comes from PGPASSWORD, PGPASSFILE or {STORAGE_PASSWORD}_FILE"
        ) from error


def _cause(error: BaseException) -> str:
    """The innermost cause, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    told = str(error.orig if isinstance(error, DBAPIError) and error.orig else error)
    told = " ".join(told.partition("(Background on this error")[0].split())
    return told.partition(" Is the server running")[0] or type(error).__name__


class _OneWriterJournal(JournalFileBackend):
    """Optuna's journal file, mended after a writer that was killed or ran out of disk.

    Optuna never reads past half a line, and a lock that a dead process left holds the next one up for half a minute. Whoever
    opens this holds the study's own lock, so neither half a line nor a lock can be another's.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(str(file))
        self._file = file
        Path(f"{file}.lock").unlink(missing_ok=True)
        self._cut_to_whole_lines()

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        try:
            super().append_logs(logs)
        except OSError:
            with suppress(OSError):
                self._cut_to_whole_lines()
            raise

    def _cut_to_whole_lines(self) -> None:
        content = self._file.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with self._file.open("r+b") as file:
                file.truncate(whole)


def _call(name: str) -> Callable[..., Any]:
    def call(self: PatientStorage, *arguments: Any, **named: Any) -> Any:
        return self.insist(getattr(self.inner, name), *arguments, **named)

    return call


class PatientStorage(BaseStorage):
    """An Optuna storage that tries again while it is away.

    tell: told once for each time that it is away; for people.

    Every method raises StorageAwayError when `patience_s` have not helped; from then on each is tried once.
    """

    def __init__(self, inner: BaseStorage, patience_s: float = PATIENCE_S) -> None:
        self.inner = inner
        self.tell: Callable[[str], None] = lambda text: None
        self._patience_s = patience_s
        self._given_up = False

    def insist(self, operation: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The operation's result, at whichever attempt it comes."""
        return self._attempt(lambda again: operation(*arguments, **named))

    def _attempt(self, operation: Callable[[bool], Any]) -> Any:
        """operation: is told whether an attempt before this one failed, which may have been carried out all the same."""
        until, pause, again = time.monotonic() + self._patience_s, _FIRST_PAUSE_S, False
        while True:
            try:
                result = operation(again)
            except (SQLAlchemyError, optuna.exceptions.StorageInternalError, OSError) as error:
                if not _may_pass(error):
                    raise
                if self._given_up or time.monotonic() > until:
                    self._given_up = True
                    raise StorageAwayError(
                        f"the storage of the trials is away, or full, and stayed so: {_cause(error)}. "
                        f"Nothing that it was told is lost; bring it back, or make room, and the same command continues"
                    ) from error
                if not again and not self._given_up:
                    self.tell(
                        f"the storage of the trials is away, or full; trying again for {self._patience_s:.0f} s: {_cause(error)}"
                    )
                time.sleep(pause)
                pause, again = min(2 * pause, _LONGEST_PAUSE_S), True
            else:
                return result

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        before = self.insist(self.inner.get_n_trials, study_id)

        def create(again: bool) -> int:
            if again and self.inner.get_n_trials(study_id) > before:
                return self.inner.get_trial_id_from_study_id_trial_number(study_id, before)
            return self.inner.create_new_trial(study_id, template_trial)

        created: int = self._attempt(create)
        return created

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        def move(again: bool) -> bool:
            try:
                return self.inner.set_trial_state_values(trial_id, state, values) or again
            except UpdateFinishedTrialError:
                if again and self.inner.get_trial(trial_id).state == state:
                    return True
                raise

        moved: bool = self._attempt(move)
        return moved

    def create_new_study(self, directions: Sequence[Any], study_name: str | None = None) -> int:
        created: int = self.insist(self.inner.create_new_study, directions, study_name)
        return created

    delete_study = _call("delete_study")
    set_study_user_attr = _call("set_study_user_attr")
    set_study_system_attr = _call("set_study_system_attr")
    get_study_id_from_name = _call("get_study_id_from_name")
    get_study_name_from_id = _call("get_study_name_from_id")
    get_study_directions = _call("get_study_directions")
    get_study_user_attrs = _call("get_study_user_attrs")
    get_study_system_attrs = _call("get_study_system_attrs")
    get_all_studies = _call("get_all_studies")
    set_trial_param = _call("set_trial_param")
    get_trial_id_from_study_id_trial_number = _call("get_trial_id_from_study_id_trial_number")
    set_trial_intermediate_value = _call("set_trial_intermediate_value")
    set_trial_user_attr = _call("set_trial_user_attr")
    set_trial_system_attr = _call("set_trial_system_attr")
    get_trial = _call("get_trial")
    get_all_trials = _call("get_all_trials")
    get_n_trials = _call("get_n_trials")
    get_best_trial = _call("get_best_trial")
    remove_session = _call("remove_session")


def _may_pass(error: BaseException) -> bool:
    """Whether this is the storage being away (or locked, or full), and not a mistake of ours."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError | SQLAlchemyError):
            return not isinstance(cause, _OURS)
        cause = cause.__cause__
    return False
