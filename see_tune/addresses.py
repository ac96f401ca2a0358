"""Addresses of what a study uses outside its process: the storage of its trials, the tracking server, and their secrets.

Nothing is opened here. What a user may write is checked, what the environment says is read, and where the trials of a study
lie is looked up in its folder. A password has no place in an address: addresses are frozen in study.yaml, logged and shown.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from see_tune.errors import SpecError, StudyError
from see_tune.home import StudyFolder

AUTO, LOCAL, JOURNAL = "auto", "local", "journal"
POSTGRES = "postgresql+psycopg"
STORAGE_VARIABLE, TRACKING_VARIABLE = "SEE_TUNE_STORAGE", "MLFLOW_TRACKING_URI"
STORAGE_PASSWORD = "SEE_TUNE_STORAGE_PASSWORD"
TRACKING_PASSWORD = "MLFLOW_TRACKING_PASSWORD"

_STORAGES = "auto, local (sqlite), journal, or postgresql+psycopg://USER@HOST[:PORT]/DATABASE"
_FILE_STORES = ("sqlite:", "file:")
_TRACKINGS = "auto, local, or the http(s)://HOST:PORT of an MLflow server"


def check_storage(text: str) -> str:
    """The address of a storage as it is. Raises: ValueError with what is valid; a password in it is not repeated."""
    if text in (AUTO, LOCAL, JOURNAL):
        return text
    _refuse_password(text, f"PGPASSWORD, PGPASSFILE or {STORAGE_PASSWORD}_FILE (a file that holds it)")
    parts = urlsplit(text)
    if parts.scheme != POSTGRES or not parts.hostname or not parts.path.strip("/"):
        raise ValueError(f"{text!r} is no storage; valid: {_STORAGES}")
    return text


def check_tracking(text: str) -> str:
    """The address of a tracking server as it is. Raises: ValueError with what is valid; a password in it is not repeated."""
    if text in (AUTO, LOCAL):
        return text
    _refuse_password(text, f"MLFLOW_TRACKING_USERNAME with {TRACKING_PASSWORD} or {TRACKING_PASSWORD}_FILE")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text!r} is no tracking server; valid: {_TRACKINGS}")
    return text


def _refuse_password(address: str, instead: str) -> None:
    if redacted(address) != address or "password" in parse_qs(urlsplit(address).query):
        raise ValueError(f"it holds a password, which would be stored and shown with the study; take it out, and give {instead}")


def redacted(text: str) -> str:
    """The text with passwords in addresses blotted out.

    >>> redacted("storage=postgresql+psycopg://me:secret@db/trials")
    'storage=postgresql+psycopg://me:***@db/trials'
    """
    return re.sub(r"(//[^/\s:@]*):[^\s/]*@", r"\1:***@", text)


def secret(name: str) -> str | None:
    """A secret of the environment: the text of the file that ``<name>_FILE`` names, else the variable `name` itself.

    Raises: SpecError where the file cannot be read.
    """
    file = os.environ.get(f"{name}_FILE")
    if not file:
        return os.environ.get(name) or None
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise SpecError(
            f"{name}_FILE names {file}, which cannot be read: {error.strerror}; valid: a file with the password"
        ) from None


def find_tracking(stated: str) -> str:
    """The tracking server that is meant: the stated one; for ``auto`` MLFLOW_TRACKING_URI, else ``local``.

    A variable that names a file (``sqlite:``, ``file:``) names no server: mlflow itself sets it so in a process that calls
    ``mlflow.set_tracking_uri`` to load a champion, and the next study of that process is to go on as before.

    Raises: SpecError where neither names one that can be used.
    """
    if stated == AUTO:
        if os.environ.get(TRACKING_VARIABLE, "").startswith(_FILE_STORES):
            return LOCAL
        return _from_environment(TRACKING_VARIABLE, check_tracking, "tracking.uri")
    try:
        return check_tracking(stated)
    except ValueError as error:
        raise SpecError(f"the tracking server: {error}") from None


def _from_environment(variable: str, check: Callable[[str], str], key: str) -> str:
    value = os.environ.get(variable)
    if not value or value == AUTO:
        return LOCAL
    try:
        return check(value)
    except ValueError as error:
        raise SpecError(f"the environment's {variable}: {error}; or state {key} in the study, which counts first") from None


# Where the trials of a study lie


@dataclass(frozen=True)
class StorageAddress:
    """Where the trials of one study lie.

    kind: ``local`` (sqlite) or ``journal``, a file of the study's folder, or the address of a database server.
    name: what its Optuna studies are called there; on a server, which many homes may share, with a suffix of its own.
    begun: whether trials lie there already.
    """

    kind: str
    name: str
    begun: bool

    @property
    def is_server(self) -> bool:
        return self.kind not in (LOCAL, JOURNAL)


def stored_address(folder: StudyFolder, study: str) -> StorageAddress | None:
    """Where the trials of a study that was begun lie, whatever is stated now; None before its first trial."""
    if folder.storage_file.is_file():
        return StorageAddress(**json.loads(folder.storage_file.read_text(encoding="utf-8")), begun=True)
    for kind, file in ((JOURNAL, folder.journal_file), (LOCAL, folder.optuna_db)):
        if file.is_file():
            return StorageAddress(kind, study, begun=True)
    return None


def find_storage(folder: StudyFolder, study: str, stated: str) -> StorageAddress:
    """Where the trials of a study are to lie: where they lie already, else what is stated, else SEE_TUNE_STORAGE, else sqlite.

    A database server may be stated under a new address.

    Raises:
        StudyError: the study was begun elsewhere.
        SpecError: the environment names no storage.
    """
    stored = stored_address(folder, study)
    if stored is None:
        kind = _from_environment(STORAGE_VARIABLE, check_storage, "storage") if stated == AUTO else stated
        name = study if kind in (LOCAL, JOURNAL) else f"{study}.{secrets.token_hex(4)}"
        return StorageAddress(kind, name, begun=False)
    if stated in (AUTO, stored.kind):
        return stored
    new = StorageAddress(stated, stored.name, begun=True)
    if stored.is_server and new.is_server:
        return new
    raise StudyError(
        f"the trials of {folder.root.name} lie in storage: {stored.kind}, and storage: {stated} would not find them; "
        f"leave it as it was (storage: auto), give the new study a name of its own (--name {folder.root.name}-2), "
        f"or set the old one aside and begin anew (--fresh)"
    )


def record_storage(folder: StudyFolder, address: StorageAddress) -> None:
    """Note in the study's folder on which server its trials lie; a file in the folder needs no note."""
    if not address.is_server:
        return
    temporary = folder.storage_file.with_suffix(".tmp")
    temporary.write_text(json.dumps({"kind": address.kind, "name": address.name}) + "\n", encoding="utf-8")
    temporary.replace(folder.storage_file)
