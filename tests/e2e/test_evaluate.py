"""`see-tune evaluate`: the number that a study reported is the number that its stored model gives again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


def test_the_champion_in_the_registry_gives_what_the_study_reported(home: Path, summary: dict[str, Any]) -> None:
    better = max((summary["see"], summary["off"]), key=lambda arm: arm["validation"]["val/recall_at_1"])

    found = see_tune("evaluate", "models:/see-tune.glyphs@champion", home=home)

    expected = reported(better, 0)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert found["model"] == "models:/see-tune.glyphs@champion"
