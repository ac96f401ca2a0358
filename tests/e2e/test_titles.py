"""Two collections of one's own, read by one reader, are two datasets: an experiment and a champion each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from see_tune.cli.app import main

STUDY = """
study: {title}
dataset: {{name: manifest, root: {root}, title: {title}}}
data: {{image_size: 32}}
model: {{backbone: glyphnet, weights: none, embedding_dim: 12, freeze_patch_embed: false}}
loss: {{name: nsoftmax}}
train: {{epochs: 1, batch_size: 20, freeze_backbone_epochs: 0}}
search: {{see.n_aug: {{int: [1, 11]}}}}
pruner: {{name: none}}
budget: {{trials: 1}}
validation: {{fraction: 0.4, rerank_top: 0}}
final: {{seeds: 1}}
"""
TITLES = ("birds", "fish")


def collection(folder: Path, title: str, seed: int) -> Path:
    """A manifest of 10 classes of 4 noisy pictures each, half of them test classes."""
    rng, lines = np.random.default_rng(seed), ["path,label,split"]
    (folder / title).mkdir()
    for number in range(40):
        label = number // 4
        pixels = np.clip(25 * label + rng.normal(0, 30, (32, 32, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / title / f"{number}.png")
        lines.append(f"{title}/{number}.png,{label},{'train' if label < 5 else 'test'}")
    manifest = folder / f"{title}.csv"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both studies run to their ends."""
    folder = tmp_path_factory.mktemp("titles")
    for seed, title in enumerate(TITLES):
        (folder / f"{title}.yaml").write_text(STUDY.format(title=title, root=collection(folder, title, seed)))
        command = [sys.executable, "-m", "see_tune.cli.app", "run", f"{title}.yaml", "--home", "home"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder / "home"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_each_has_a_champion_and_an_experiment_of_its_title(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mlflow import MlflowClient

    champions = said(capsys, "best", "--home", str(home))
    assert [(found["uri"], found["champion"]) for found in champions] == [(f"models:/see-tune.{t}/1", True) for t in TITLES]
    client = MlflowClient(tracking_uri=f"sqlite:///{home}/mlflow.db")
    for title in TITLES:
        experiment = client.get_experiment_by_name(f"see-tune/{title}")
        (parent,) = client.search_runs([experiment.experiment_id], f"tags.mlflow.runName = '{title}'")
        assert parent.data.tags["see_tune.dataset"] == title
    assert client.get_experiment_by_name("see-tune/manifest") is None
    assert [study["dataset"] for study in said(capsys, "list", "--home", str(home))] == list(TITLES)


@pytest.mark.parametrize("title", TITLES)
def test_the_champion_is_evaluated_on_the_pictures_of_its_study(
    title: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = json.loads((home / f"studies/{title}/summary.json").read_text())
    tests = [summary[side]["test"]["test/recall_at_1"] for side in ("see", "off")]
    found = said(capsys, "evaluate", f"models:/see-tune.{title}@champion", "--home", str(home))
    assert found["dataset"] == title
    assert [pytest.approx(found["recall_at_1"], abs=1e-6)] in tests


def test_a_champion_is_evaluated_on_another_collection_that_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    another = ("--dataset", "manifest", "--root", str(home.parent / "fish.csv"))
    assert said(capsys, "evaluate", "models:/see-tune.birds@champion", *another, "--home", str(home))["dataset"] == "manifest"
    assert main(["evaluate", "models:/see-tune.birds@champion", "--dataset", "foo", "--home", str(home)]) == 2
    assert "no dataset 'foo'" in capsys.readouterr().err


@pytest.fixture
def index(home: Path, tmp_path: Path) -> list[str]:
    """An index by the first version of `birds`, as the command that brings it up to date."""
    command = ["index", "birds", "--images", str(home.parent / "birds"), "--out", str(tmp_path / "index"), "--home", str(home)]
    assert main(command) == 0
    return [*command, "--update"]


def test_an_index_and_an_export_name_the_version_that_made_them(home: Path, index: list[str], tmp_path: Path) -> None:
    assert main(["export", "birds", "--out", str(tmp_path / "export"), "--home", str(home)]) == 0
    for file in ("index/index.json", "export/model.json"):
        assert json.loads((tmp_path / file).read_text())["source"] == "models:/see-tune.birds/1"


def test_an_index_is_updated_of_its_own_dataset_folder_and_version_alone(
    home: Path, index: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = (tmp_path / "index/index.json").read_text()
    own, other = str(home.parent / "birds"), str(home.parent / "fish")
    for before, after, says in (
        ("birds", "fish", "was made by models:/see-tune.birds/1, and embeddings of models:/see-tune.fish do not mix"),
        (own, other, f"is of the pictures in {own}, not of those in {other}"),
    ):
        assert main([after if word == before else word for word in index]) == 2
        assert says in capsys.readouterr().err
    assert main([*index, "--version", "2"]) == 2
    assert "embeddings of models:/see-tune.birds/2 do not mix" in capsys.readouterr().err
    assert (tmp_path / "index/index.json").read_text() == written


def test_an_update_keeps_the_model_of_the_index_and_says_when_the_champion_is_another(
    home: Path, index: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{home}/mlflow.db")
    first = client.get_model_version("see-tune.birds", "1")
    second = str(client.create_model_version("see-tune.birds", first.source, first.run_id, tags=first.tags).version)
    capsys.readouterr()
    assert main(index) == 0
    assert capsys.readouterr().err == ""
    try:
        assert main(["promote", "birds", second, "--home", str(home)]) == 0
        capsys.readouterr()
        assert main(index) == 0
    finally:
        client.set_registered_model_alias("see-tune.birds", "champion", "1")
    said = capsys.readouterr()
    assert said.err == (
        f"note: {tmp_path}/index keeps models:/see-tune.birds/1, which made it; the champion is models:/see-tune.birds/{second} "
        "by now: another --out makes an index with it\n"
    )
    assert "by models:/see-tune.birds/1" in said.out


def test_an_index_is_updated_where_its_registry_is_not(
    index: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*index[:-2], str(tmp_path / "elsewhere"), "--update"]) == 0
    assert "note: models:/see-tune.birds/1 made" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["best", "bird"], ["promote", "bird", "1"], ["export", "bird", "--out", "absent"]])
def test_a_misspelt_title_is_answered_with_those_that_have_a_model(
    arguments: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--home", str(home)]) == 2
    assert "no dataset called 'bird' has a registered model here; those that have: birds, fish" in capsys.readouterr().err
