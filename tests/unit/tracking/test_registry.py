import multiprocessing
import shutil
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from mlflow import MlflowClient

from see_tune.errors import StudyError
from see_tune.home import Home
from see_tune.tracking import registry
from see_tune.tracking.connection import connect
from see_tune.tracking.registry import (
    CHAMPION,
    Candidate,
    Registration,
    fetch_model_folder,
    promote,
    read_versions,
    register_champion,
)


def copy_model(folder: Path, into: Path) -> Path:
    shutil.copytree(folder, into / "model" / "artifacts" / "embedder")
    return into / "model"


@pytest.fixture
def enter(client: MlflowClient, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Registration]:
    """Registers a candidate from a run of its own; the pyfunc around its model has its own tests and takes seconds."""

    monkeypatch.setattr(registry, "save_pyfunc", copy_model)

    def register(candidate: Candidate, *, run_id: str | None = None, using: MlflowClient = client) -> Registration:
        run_id = run_id or client.create_run("0").info.run_id
        return register_champion(using, candidate, model_folder=model_folder, run_id=run_id)

    return register


def champion(client: MlflowClient, dataset: str, alias: str = CHAMPION) -> int:
    return int(client.get_model_version_by_alias(f"see-tune.{dataset}", alias).version)


def test_the_first_version_is_champion_of_the_dataset_and_of_its_size(enter, client, candidate) -> None:
    first = candidate()
    result = enter(first)
    assert result == Registration(first.model, 1, True, "best validation mean 50.0 of the comparable versions")
    assert champion(client, first.dataset) == champion(client, first.dataset, "glyphnet-16") == 1


@pytest.mark.parametrize(("second", "winner"), [(0.6, 2), (0.4, 1), (0.5, 1)])
def test_the_better_validation_mean_is_champion_and_a_draw_changes_nothing(enter, client, candidate, second, winner) -> None:
    enter(candidate(0.5))
    result = enter(candidate(second))
    assert champion(client, candidate().dataset) == winner
    assert result.champion == (winner == 2)
    assert "50.0" in result.note or result.champion


def test_two_datasets_of_ones_own_have_a_champion_each_and_promoting_one_leaves_the_other(enter, client, candidate) -> None:
    for value in (0.5, 0.4):
        enter(candidate(value, dataset="Birds_2024-v1.0"))
        enter(candidate(value, dataset="fish"))
    promote(client, "fish", 2)
    assert (champion(client, "Birds_2024-v1.0"), champion(client, "fish")) == (1, 2)


@pytest.mark.parametrize("name", ["fsh", "", "o'clock"])
def test_a_name_that_nothing_is_registered_under_is_answered_with_those_that_are(enter, client, candidate, name) -> None:
    enter(candidate(dataset="fishes"))
    for ask in (lambda: read_versions(client, name), lambda: promote(client, name, 1)):
        with pytest.raises(StudyError, match=f"no dataset called .*{name}.*those that have: .*fishes"):
            ask()


def test_a_dataset_of_see_tunes_own_may_have_no_version_yet(client) -> None:
    assert read_versions(client, "cub200") == ()


def test_the_test_metrics_choose_nothing(enter, client, candidate) -> None:
    enter(candidate(0.5, test={"test/recall_at_1": 0.1}))
    enter(candidate(0.4, test={"test/recall_at_1": 0.9}))
    assert champion(client, candidate().dataset) == 1


@pytest.mark.parametrize("name", ["fingerprint", "split_hash", "crop", "objective"])
def test_what_was_measured_differently_is_not_compared(enter, client, candidate, name) -> None:
    enter(candidate(0.5))
    result = enter(candidate(0.9, **{name: "other"}))
    assert champion(client, candidate().dataset) == 1
    assert not result.champion
    assert result.note == (
        f"not comparable with the champion, version 1: other {name}; see-tune promote {candidate().dataset} 2 makes it champion"
    )


def test_what_was_chosen_on_the_test_classes_never_gets_an_alias(enter, client, candidate) -> None:
    result = enter(candidate(0.9, protocol="paper"))
    assert not result.champion
    assert client.get_registered_model(candidate().model).aliases == {}
    enter(candidate(0.1))
    assert champion(client, candidate().dataset) == 2
    enter(candidate(0.95, protocol="paper"))
    assert champion(client, candidate().dataset) == 2


def test_each_size_keeps_its_best(enter, client, candidate) -> None:
    enter(candidate(0.9, embedding_dim=64))
    enter(candidate(0.5, embedding_dim=16))
    enter(candidate(0.6, embedding_dim=16))
    enter(candidate(0.4, embedding_dim=16))
    assert champion(client, candidate().dataset) == 1
    assert champion(client, candidate().dataset, "glyphnet-64") == 1
    assert champion(client, candidate().dataset, "glyphnet-16") == 3


def test_a_backbone_with_a_tag_makes_an_alias_that_mlflow_allows(enter, client, candidate) -> None:
    enter(candidate(backbone="vit_small_patch16_224.dino"))
    assert champion(client, candidate().dataset, "vit_small_patch16_224-dino-16") == 1


def test_registering_the_same_run_again_makes_no_second_version(enter, client, candidate) -> None:
    run_id = client.create_run("0").info.run_id
    assert enter(candidate(), run_id=run_id) == enter(candidate(), run_id=run_id)
    assert len(read_versions(client, candidate().dataset)) == 1


def test_a_version_is_read_as_it_was_registered(enter, client, candidate, tmp_path, model_folder) -> None:
    entered = candidate(0.123456789, test={"test/recall_at_1": 0.1, "test/map_at_r": 0.2})
    enter(entered)
    (version,) = read_versions(client, entered.dataset)
    assert version.candidate == entered
    assert version.aliases == ("champion", "glyphnet-16")
    fetched = fetch_model_folder(client, version, tmp_path / "champion")
    assert {file.name: file.read_bytes() for file in fetched.iterdir()} == {
        file.name: file.read_bytes() for file in model_folder.iterdir()
    }
    assert version in read_versions(client)


def test_promotion_by_hand_holds_until_a_comparable_version_is_better(enter, client, candidate) -> None:
    enter(candidate(0.5))
    enter(candidate(0.7, crop="224"))
    assert promote(client, candidate().dataset, 2).aliases == ("champion",)
    enter(candidate(0.6))
    assert champion(client, candidate().dataset) == 2
    enter(candidate(0.8, crop="224"))
    assert champion(client, candidate().dataset) == 4


def test_a_version_that_cannot_be_champion_is_not_promoted(enter, client, candidate) -> None:
    enter(candidate(protocol="paper"))
    with pytest.raises(StudyError, match="has no version 2"):
        promote(client, candidate().dataset, 2)
    with pytest.raises(StudyError, match="chosen on the test classes"):
        promote(client, candidate().dataset, 1)


def test_an_alias_that_somebody_put_on_a_version_of_his_own_stays_there(enter, client, candidate) -> None:
    client.create_registered_model(candidate().model)
    client.create_model_version(candidate().model, "file:///elsewhere")
    client.set_registered_model_alias(candidate().model, CHAMPION, "1")
    result = enter(candidate())
    assert champion(client, candidate().dataset) == 1
    assert result.note == "the champion, version 1, was put there by hand"


class Interrupted:
    """A client that lets something happen just before it sets its first alias ``champion``, from a reading now stale."""

    def __init__(self, client: MlflowClient, meanwhile: Callable[[], object]) -> None:
        self._client = client
        self._meanwhile = [meanwhile]

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    def set_registered_model_alias(self, name: str, alias: str, version: str) -> None:
        if alias == CHAMPION and self._meanwhile:
            self._meanwhile.pop()()
        self._client.set_registered_model_alias(name, alias, version)


def test_an_alias_set_from_a_stale_reading_is_put_right(enter, client, candidate) -> None:
    worse, better = candidate(0.4), candidate(0.6)
    result = enter(worse, using=Interrupted(client, lambda: enter(better)))
    assert champion(client, worse.dataset) == 2
    assert not result.champion


def enter_at_once(home: Home, candidate: Candidate, model_folder: Path, start: Barrier) -> None:
    """What the driver of each of several studies does at its end; runs in a process of its own."""
    registry.save_pyfunc = copy_model
    client = connect(home, "local")
    run_id = client.create_run("0").info.run_id
    start.wait(60)
    register_champion(client, candidate, model_folder=model_folder, run_id=run_id)


def test_studies_that_finish_together_promote_the_best_one(home, client, candidate, model_folder) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["see_tune.tracking.registry", "mlflow.store.tracking.sqlalchemy_store"])
    candidates, start = [candidate(value, study=f"study-{value}") for value in (0.3, 0.7, 0.5)], context.Barrier(3)
    drivers = [context.Process(target=enter_at_once, args=(home, found, model_folder, start)) for found in candidates]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(120)
    assert [driver.exitcode for driver in drivers] == [0, 0, 0]
    versions = read_versions(client, candidate().dataset)
    assert len(versions) == 3
    (holder,) = [version for version in versions if "champion" in version.aliases]
    assert holder.candidate.validation == 0.7
    assert holder.aliases == ("champion", "glyphnet-16")
