"""`see-tune evaluate`: the number that a study reported is the number that its stored model gives again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from see_tune import evaluate_embeddings
from see_tune.cli.app import main
from see_tune.data import read_table
from see_tune.data.pictures import Images
from see_tune.data.splits import split_table
from see_tune.data.table import ImageTable
from see_tune.home import Home
from see_tune.looks import read_looks
from see_tune.serving.standalone_onnx import load_embedder

SMALL = """
study: small
dataset: {name: glyphs, classes: 40}
model: {embedding_dim: 12}
train: {epochs: 2}
search:
  see.n_aug: {int: [1, 11]}
budget: {trials: 1}
validation: {fraction: 0.4, rerank_top: 0}
final: {seeds: 2}
resources: {max_parallel: 1}
"""


def see_tune(*arguments: str, home: Path) -> Any:
    """What one command line prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "see_tune.cli.app", *arguments, "--json", "--home", str(home)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=home.parent,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluate") / "home"


@pytest.fixture(scope="module")
def summary(home: Path) -> dict[str, Any]:
    """A study run to its end, both arms trained on all training classes and tested once."""
    (home.parent / "small.yaml").write_text(SMALL)
    found: dict[str, Any] = see_tune("run", "small.yaml", home=home)
    return found


def reported(arm: dict[str, Any], seed: int) -> dict[str, float]:
    """What the study says of one final training, by the names of `see-tune evaluate`."""
    return {name.removeprefix("test/"): values[seed] for name, values in arm["test"].items()}


@pytest.mark.parametrize(("side", "seed"), [("see", 0), ("see", 1), ("off", 0)])
def test_a_final_trainings_folder_gives_what_the_study_reported(
    home: Path, summary: dict[str, Any], side: str, seed: int
) -> None:
    arm = summary[side]
    folder = home / f"studies/small/trials/final-{side}-{arm['lineage']}-e{arm['epoch']}-s{seed}"

    found = see_tune("evaluate", str(folder), "--dataset", "glyphs", home=home)

    expected = reported(arm, seed)
    assert {"recall_at_1", "recall_at_8", "map_at_r", "r_precision"} <= expected.keys()
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert found["queries"] > 100


def test_a_dataset_that_the_model_was_not_trained_on_is_told_with_the_classes_that_bear_a_name_of_its_training(
    home: Path, summary: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = glyphs(home)
    trained_on = table.class_names[table.labels[table.rows("train")[0]]]
    rows = [f"{number}.png,{name},{split}" for number, (name, split) in enumerate(OTHERS + [(trained_on, "test")] * 2)]
    (tmp_path / "manifest.csv").write_text("path,label,split\n" + "\n".join(rows) + "\n")
    for number in range(len(rows)):
        Image.new("RGB", (32, 32), (20 * number, 0, 0)).save(tmp_path / f"{number}.png")
    evaluate = ["evaluate", "models:/see-tune.glyphs@champion", "--home", str(home), "--json"]

    assert main([*evaluate, "--dataset", "manifest", "--root", str(tmp_path)]) == 0
    other = capfd.readouterr()
    assert main(evaluate) == 0
    own = capfd.readouterr()

    assert "note: another dataset than the model was trained on" in other.err
    assert "1 of 2 bear the name of one" in other.err
    assert json.loads(other.out)["classes_trained_on"] == 1
    assert "note:" not in own.err
    assert json.loads(own.out)["classes_trained_on"] == 0
    assert json.loads(own.out)["fingerprint"] == json.loads(own.out)["trained_on_fingerprint"]


OTHERS = [(name, split) for name, split in (("one", "train"), ("two", "train"), ("three", "test")) for _ in range(2)]


@pytest.fixture(scope="module")
def champion(summary: dict[str, Any]) -> dict[str, float]:
    """What the study says of the model that it registered."""
    better = max((summary["see"], summary["off"]), key=lambda arm: arm["validation"]["val/recall_at_1"])
    return reported(better, 0)


def glyphs(home: Path) -> ImageTable:
    return read_table("glyphs", places=(), cache=home / "cache", classes=40)


def recalls_by(embed: Callable[[list[Image.Image]], NDArray[np.float32]], home: Path) -> dict[str, float]:
    """Recall@k of whatever embeds pictures, on the test classes of the study."""
    table = glyphs(home)
    rows, images = split_table(table, kind="test").query_rows, Images(table)
    measured = evaluate_embeddings(embed([images[row] for row in rows.tolist()]), table.labels[rows], ks=(1, 2, 4, 8))
    return {name: value for name, value in measured.items() if name.startswith("recall_at_")}


def test_the_champion_in_the_registry_gives_what_the_study_reported(home: Path, champion: dict[str, float]) -> None:
    fingerprint = glyphs(home).fingerprint()
    before = read_looks(Home(home), fingerprint)

    found = see_tune("evaluate", "models:/see-tune.glyphs@champion", "--nmi", home=home)

    assert {name: found[name] for name in champion} == pytest.approx(champion, abs=1e-6)
    assert found["model"] == "models:/see-tune.glyphs@champion"
    assert 0 < found["nmi"] < 1
    assert read_looks(Home(home), fingerprint) == replace(before, by_hand=before.by_hand + 1)


def test_the_pyfunc_gives_what_the_study_reported(
    home: Path, summary: dict[str, Any], champion: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", summary["tracking"])
    model = mlflow.pyfunc.load_model("models:/see-tune.glyphs@champion")

    found = recalls_by(lambda images: model.predict([np.asarray(image) for image in images]), home)

    assert found == pytest.approx({name: champion[name] for name in found}, abs=1e-6)


def test_the_onnx_export_gives_what_the_study_reported(
    home: Path, champion: dict[str, float], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "glyphs", "--format", "onnx", "--out", str(tmp_path / "onnx"), "--home", str(home)]) == 0

    found = recalls_by(load_embedder(tmp_path / "onnx").embed, home)

    assert found == pytest.approx({name: champion[name] for name in found}, abs=1e-4)
    printed = capfd.readouterr()
    assert printed.out.splitlines() == [f"{tmp_path}/onnx   python {tmp_path}/onnx/embed.py OUT.npy IMAGE..."]
    assert printed.err == ""


def test_the_report_prints_what_the_study_reported(home: Path, summary: dict[str, Any]) -> None:
    table = (home / "studies/small/report.md").read_text().partition("| seed | SEE R@1 | SEE off R@1 | gain |")[2]
    rows = [line.split(" | ") for line in table.splitlines()[2:4]]
    for seed, row in enumerate(rows):
        shown = [f"{100 * summary[side]['test']['test/recall_at_1'][seed]:.1f}" for side in ("see", "off")]
        assert row[1:3] == shown
