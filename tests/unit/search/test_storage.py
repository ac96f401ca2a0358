"""Wherever the trials lie: the same study, whatever was cut, away or full."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from see_tune.addresses import StorageAddress, find_storage, stored_address
from see_tune.errors import StorageAwayError, StudyError
from see_tune.home import Home, StudyFolder
from see_tune.search.generations import view_ledgers
from see_tune.search.storage import PatientStorage, open_storage, reach_storage, view_storage


@pytest.fixture(params=["local", "journal", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("postgres").url if request.param == "postgres" else request.param


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Memory where there is some: a commit waits for the disk."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as quick:
        yield Path(quick)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return Home(tmp_path).study("small").make()


def stated(study_text: str, kind: str) -> str:
    return f"{study_text}storage: {kind}\n"


def test_study_cut_and_continued_ends_with_each_lineage_once(
    build_bench: Callable[..., Any], study_text: str, kind: str, tmp_path: Path
) -> None:
    text = stated(study_text, kind)
    build_bench(tmp_path, text).run(epochs=9)
    seen = view_ledgers(Home(tmp_path).study("small"), "small")
    assert seen is not None
    assert [row.lineage for row in seen[0].finished()] == ["t000"]
    bench = build_bench(tmp_path, text)
    bench.run()
    assert [row.lineage for row in bench.search.finished()] == [f"t{number:03d}" for number in range(6)]
    assert bench.search.running() == bench.final.running() == ()


def test_another_space_is_a_generation_in_every_storage(
    build_bench: Callable[..., Any], study_text: str, kind: str, tmp_path: Path
) -> None:
    text = stated(study_text, kind)
    build_bench(tmp_path, text, until="search").run()
    bench = build_bench(tmp_path, text.replace("[0.0, 2.0]", "[0.0, 3.0]").replace("trials: 6", "trials: 8"), until="search")
    bench.run()
    assert len(bench.carried.kept) == 6
    assert len(bench.search.finished()) == 8


def test_viewing_makes_nothing(build_bench: Callable[..., Any], study_text: str, kind: str, tmp_path: Path) -> None:
    build_bench(tmp_path, stated(study_text, kind), until="search").run(epochs=5)
    folder = Home(tmp_path).study("small")
    before = {file: file.read_bytes() for file in folder.root.iterdir()}
    address = stored_address(folder, "small")
    assert address is not None
    storage = view_storage(folder, address)
    study = optuna.load_study(storage=storage, study_name=address.name)
    assert [trial.state for trial in study.trials].count(TrialState.RUNNING) == 1
    assert {file: file.read_bytes() for file in folder.root.iterdir()} == before
    if kind != "journal":  # whose reader could write, and does not
        with pytest.raises(optuna.exceptions.StorageInternalError):
            study.set_user_attr("written", 1)


def test_two_homes_share_a_server(build_bench: Callable[..., Any], study_text: str, postgres: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        bench = build_bench(tmp_path / name, stated(study_text, postgres.url), until="search")
        bench.run()
        assert [row.lineage for row in bench.search.finished()] == [f"t{number:03d}" for number in range(6)]


def empty(postgres: Any, folder: StudyFolder) -> StorageAddress:
    """Make the database a fresh one."""
    address = StorageAddress(postgres.url, "x", False)
    with open_storage(folder, address).inner._backend.engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    return address


def test_fresh_database_is_reachable(postgres: Any, folder: StudyFolder) -> None:
    reach_storage(empty(postgres, folder))


def test_studies_that_start_together_on_a_fresh_database_all_start(postgres: Any, tmp_path: Path) -> None:
    problems: list[BaseException] = []
    empty(postgres, Home(tmp_path).study("x").make())

    def start(number: int) -> None:
        try:
            open_storage(Home(tmp_path).study(f"s{number}").make(), StorageAddress(postgres.url, f"s{number}", False))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_no_password_is_in_the_studys_folder(
    build_bench: Callable[..., Any], study_text: str, postgres: Any, tmp_path: Path
) -> None:
    build_bench(tmp_path, stated(study_text, postgres.url), until="search").run(epochs=5)
    assert json.loads((tmp_path / "studies/small/storage.json").read_text())["kind"] == postgres.url
    assert all(postgres.password.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_server_that_is_away_at_the_start_is_named_with_the_cause(folder: StudyFolder) -> None:
    address = find_storage(folder, "small", "postgresql+psycopg://me@127.0.0.1:9/trials")
    with pytest.raises(StudyError, match=r"127\.0\.0\.1:9/trials cannot be used: .*refused.*PGPASSFILE"):
        open_storage(folder, address)


def test_wrong_password_is_a_users_mistake_and_not_repeated(
    folder: StudyFolder, postgres: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("a-wrong-one")
    monkeypatch.setenv("SEE_TUNE_STORAGE_PASSWORD_FILE", str(tmp_path / "wrong"))
    with pytest.raises(StudyError, match="password authentication failed") as caught:
        open_storage(folder, find_storage(folder, "small", postgres.url))
    assert "a-wrong-one" not in str(caught.value)


def test_database_that_lost_a_study_is_not_taken_for_a_new_one(
    build_bench: Callable[..., Any], study_text: str, postgres: Any, folder: StudyFolder, tmp_path: Path
) -> None:
    text = stated(study_text, postgres.url)
    build_bench(tmp_path, text, until="search").run(epochs=5)
    address = stored_address(folder, "small")
    assert address is not None
    storage = open_storage(folder, address)
    for name in (address.name, f"{address.name}/final"):
        optuna.delete_study(study_name=name, storage=storage)
    with pytest.raises(StudyError, match="has no trials of small"):
        build_bench(tmp_path, text)


def test_a_restart_of_the_server_costs_a_pause_and_no_row(
    build_bench: Callable[..., Any], study_text: str, postgres: Any, tmp_path: Path
) -> None:
    text = stated(study_text, postgres.url)
    bench = build_bench(tmp_path, text)
    ended, told = threading.Event(), []

    def restart_over_and_over() -> None:
        for pause_s in (0.4, 0.2, 0.3, 0.5, 0.3):
            ended.wait(pause_s)
            postgres.stop()
            time.sleep(0.2)
            postgres.start()

    bench.search._study._storage.tell = told.append
    restarts = threading.Thread(target=restart_over_and_over)
    restarts.start()
    try:
        bench.run()
    finally:
        ended.set()
        restarts.join()
    assert any("trying again" in line for line in told)
    assert [row.lineage for row in bench.search.finished()] == [f"t{number:03d}" for number in range(6)]
    assert bench.search.started() == 6
    assert bench.search.running() == bench.final.running() == ()


class Unsteady(optuna.storages.InMemoryStorage):
    """Carries every write out, and loses the answer to each once."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[Any] = set()

    def _lose(self, *key: Any) -> None:
        if key not in self._told:
            self._told.add(key)
            raise OSError("the answer was lost")

    def create_new_trial(self, study_id: int, template_trial: Any = None) -> int:
        created = super().create_new_trial(study_id, template_trial)
        self._lose("trial", created)
        return created

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Any = None) -> bool:
        moved = super().set_trial_state_values(trial_id, state, values)
        self._lose("state", trial_id, state)
        return moved


def test_write_whose_answer_was_lost_is_done_once() -> None:
    study = optuna.create_study(storage=PatientStorage(Unsteady()))
    study.enqueue_trial({"x": 1.0})
    for _ in range(2):
        trial = study.ask()
        study.tell(trial, trial.suggest_float("x", 0, 1))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
    assert study.trials[0].value == 1.0


class Gone(optuna.storages.InMemoryStorage):
    def get_all_studies(self) -> Any:
        raise OSError("no route to host")


def test_storage_that_stays_away_ends_the_study_as_interrupted() -> None:
    told: list[str] = []
    storage = PatientStorage(Gone(), patience_s=0.3)
    storage.tell = told.append
    with pytest.raises(StorageAwayError, match="no route to host") as caught:
        storage.get_all_studies()
    assert caught.value.exit_code == 130
    assert len(told) == 1
    start = time.monotonic()
    assert storage.get_n_trials(storage.create_new_study([])) == 0  # a full disk can be read
    with pytest.raises(StorageAwayError):  # the patience is spent once
        storage.get_all_studies()
    assert time.monotonic() - start < 0.2
    assert len(told) == 1


def test_mistake_of_ours_is_not_tried_again() -> None:
    with pytest.raises(KeyError):
        PatientStorage(optuna.storages.InMemoryStorage()).get_trial(7)


def test_journal_that_was_cut_in_the_middle_of_a_line_goes_on(
    build_bench: Callable[..., Any], study_text: str, folder: StudyFolder, tmp_path: Path
) -> None:
    text = stated(study_text, "journal")
    build_bench(tmp_path, text, until="search").run(epochs=5)
    with folder.journal_file.open("ab") as file:
        file.write(b'{"op_code": 4, "worker_id"')
    Path(f"{folder.journal_file}.lock").symlink_to(folder.journal_file)  # and its writer held its lock
    start = time.monotonic()
    bench = build_bench(tmp_path, text, until="search")
    bench.run()
    assert len(bench.search.finished()) == 6
    assert time.monotonic() - start < 20


def test_journal_on_a_full_disk_keeps_whole_lines(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(folder, StorageAddress("journal", "small", False))
    study = optuna.create_study(storage=storage)
    whole = folder.journal_file.read_bytes()
    real = optuna.storages.journal.JournalFileBackend.append_logs
    attempts: list[int] = []

    def full(self: Any, logs: Any) -> None:
        attempts.append(1)
        if len(attempts) > 1:
            real(self, logs)
            return
        with folder.journal_file.open("ab") as file:
            file.write(b'{"half')
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(optuna.storages.journal.JournalFileBackend, "append_logs", full)
    study.set_user_attr("a", 1)
    assert folder.journal_file.read_bytes().startswith(whole)
    seen = view_storage(folder, StorageAddress("journal", "small", True))
    assert optuna.load_study(storage=seen, study_name=study.study_name).user_attrs == {"a": 1}
