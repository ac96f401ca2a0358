"""What may stand in an address, and where a study's trials lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from see_tune.addresses import (
    StorageAddress,
    check_storage,
    check_tracking,
    find_storage,
    find_tracking,
    record_storage,
    redacted,
    secret,
    stored_address,
)
from see_tune.errors import SpecError, StudyError
from see_tune.home import Home, StudyFolder

SERVER = "postgresql+psycopg://me@db:5432/trials"


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return Home(tmp_path).study("s").make()


@pytest.mark.parametrize("text", ["auto", "local", "journal", SERVER, "postgresql+psycopg://me@[::1]/trials"])
def test_storage_that_may_be_written(text: str) -> None:
    assert check_storage(text) == text


@pytest.mark.parametrize(
    "text", ["sqlite:///x.db", "postgresql://me@db/x", "postgresql+psycopg://db", "redis://db/0", "Local", ""]
)
def test_storage_that_may_not_is_told_what_may(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no storage; valid: auto, local \(sqlite\), journal, or postgresql\+psycopg://"):
        check_storage(text)


@pytest.mark.parametrize("check", [check_storage, check_tracking])
@pytest.mark.parametrize(
    "text", ["postgresql+psycopg://me:secret@db/x", "https://me:secret@host", "https://host?password=secret"]
)
def test_password_in_an_address_is_refused_and_not_repeated(check: object, text: str) -> None:
    with pytest.raises(ValueError, match=r"it holds a password.*give .*_FILE") as caught:
        check(text)  # type: ignore[operator]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["databricks", "sqlite:///mlflow.db", "host:5000", "http://"])
def test_tracking_server_that_may_not_be_is_told_what_may(text: str) -> None:
    with pytest.raises(ValueError, match="is no tracking server; valid: auto, local, or the http"):
        check_tracking(text)


def test_passwords_are_blotted_out() -> None:
    assert redacted(f"--set storage={SERVER.replace('me@', 'me:p@')}") == f"--set storage={SERVER.replace('me@', 'me:***@')}"
    assert redacted(SERVER) == SERVER


def test_environment_is_the_default_and_no_more(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_storage(folder, "s", "auto") == StorageAddress("local", "s", begun=False)
    assert find_tracking("auto") == "local"
    monkeypatch.setenv("SEE_TUNE_STORAGE", SERVER)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    assert find_storage(folder, "s", "auto").kind == SERVER
    assert find_storage(folder, "s", "journal") == StorageAddress("journal", "s", begun=False)
    assert (find_tracking("auto"), find_tracking("local")) == ("http://mlflow:5000", "local")


@pytest.mark.parametrize("store", ["sqlite:////home/me/runs/mlflow.db", "file:./mlruns"])
def test_environment_that_names_a_file_names_no_server(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    assert find_tracking("auto") == "local"


def test_environment_that_cannot_be_used_is_named(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEE_TUNE_STORAGE", "mysql://me@db/x")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "databricks")
    with pytest.raises(SpecError, match="SEE_TUNE_STORAGE: 'mysql"):
        find_storage(folder, "s", "auto")
    with pytest.raises(SpecError, match="MLFLOW_TRACKING_URI: 'databricks'"):
        find_tracking("auto")


def test_begun_study_stays_where_it_is(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.optuna_db.touch()
    monkeypatch.setenv("SEE_TUNE_STORAGE", SERVER)
    assert find_storage(folder, "s", "auto") == StorageAddress("local", "s", begun=True)
    with pytest.raises(StudyError, match=r"lie in storage: local, and storage: journal.*--fresh"):
        find_storage(folder, "s", "journal")


def test_server_is_remembered_by_the_folder(folder: StudyFolder) -> None:
    address = find_storage(folder, "s", SERVER)
    record_storage(folder, address)
    stored = stored_address(folder, "s")
    assert stored == StorageAddress(SERVER, address.name, begun=True)
    assert stored.name.startswith("s.")
    assert find_storage(folder, "s", "auto") == stored
    moved = find_storage(folder, "s", SERVER.replace("db", "elsewhere"))
    assert (moved.name, moved.begun) == (stored.name, True)


def test_studies_of_one_name_have_names_of_their_own_on_a_server(folder: StudyFolder) -> None:
    assert find_storage(folder, "s", SERVER).name != find_storage(folder, "s", SERVER).name


def test_secret_comes_from_a_file_before_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert secret("SOME_PASSWORD") is None
    monkeypatch.setenv("SOME_PASSWORD", "variable")
    assert secret("SOME_PASSWORD") == "variable"
    (tmp_path / "file").write_text(" with blanks \n")
    monkeypatch.setenv("SOME_PASSWORD_FILE", str(tmp_path / "file"))
    assert secret("SOME_PASSWORD") == " with blanks "
    monkeypatch.setenv("SOME_PASSWORD_FILE", str(tmp_path / "absent"))
    with pytest.raises(SpecError, match=r"SOME_PASSWORD_FILE names .*absent"):
        secret("SOME_PASSWORD")
