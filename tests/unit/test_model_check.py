"""A model is built once to see whether it can be; as long as nothing about it changes, it is not built again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from see_tune import model_check
from see_tune.errors import UserError
from see_tune.model_check import wrong_model
from see_tune.models import build_model, weights_bytes
from see_tune.spec.load import parse_study, trial_values
from see_tune.spec.models import TrialSpec

STUDY = """
study: small
dataset: {name: glyphs, classes: 40}
model: {backbone: glyphnet, weights: none, embedding_dim: 16}
search: {see.n_aug: {int: [1, 15]}}
"""


def trial(*overrides: str) -> TrialSpec:
    return trial_values(parse_study(STUDY, "study.yaml", overrides).spec)


class Builds:
    """Counts what is built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        self.number = 0
        self._cache = cache
        self._build = model_check._build
        monkeypatch.setattr(model_check, "_build", self._count)

    def _count(self, spec: TrialSpec, *, fetch: bool) -> tuple[Path, ...] | None:
        self.number += 1
        return self._build(spec, fetch=fetch)

    def ask(self, *overrides: str, fetch: bool = True) -> list[UserError]:
        return list(wrong_model(trial(*overrides), self._cache, fetch=fetch))


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builds:
    return Builds(monkeypatch, tmp_path / "cache")


def test_a_model_is_built_once(builds: Builds) -> None:
    assert builds.ask() == builds.ask() == builds.ask("seed=3", "train.epochs=2") == []
    assert builds.number == 1


@pytest.mark.parametrize("change", ["model.embedding_dim=32", "model.pooling=gem", "data.image_size=48", "train.batch_size=16"])
def test_another_model_is_built_too(builds: Builds, change: str) -> None:
    assert builds.ask() == builds.ask(change) == []
    assert builds.number == 2


def test_another_version_builds_it_anew(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    builds.ask()
    monkeypatch.setattr(model_check, "version", lambda name: "99.0" if name == "timm" else "1.0")
    builds.ask()
    assert builds.number == 2


def test_what_is_refused_is_refused_every_time(builds: Builds) -> None:
    for _ in range(2):
        (error,) = builds.ask("model.backbone=resnet5O")
        assert "resnet5O" in str(error)
    assert builds.number == 2


def test_weights_that_changed_are_loaded_again_and_refused_where_they_no_longer_fit(builds: Builds, tmp_path: Path) -> None:
    file = tmp_path / "backbone.safetensors"
    backbone = build_model(backbone="glyphnet", embedding_dim=16).backbone
    file.write_bytes(weights_bytes(backbone))
    assert builds.ask(f"model.weights={file}") == builds.ask(f"model.weights={file}") == []
    assert builds.number == 1
    as_it_was = file.stat()
    file.write_bytes(file.read_bytes().replace(b"features", b"elements"))
    os.utime(file, ns=(as_it_was.st_atime_ns, as_it_was.st_mtime_ns))  # as `cp -p` of another training's leaves it
    (error,) = builds.ask(f"model.weights={file}")
    assert "missing" in str(error)
    file.unlink()
    assert len(builds.ask(f"model.weights={file}")) == 1


def test_a_look_remembers_nothing_and_may_know_it_already(builds: Builds, tmp_path: Path) -> None:
    assert builds.ask(fetch=False) == []
    assert not (tmp_path / "cache").exists()
    builds.ask()
    builds.ask(fetch=False)
    assert builds.number == 2


def test_a_memory_that_cannot_be_read_is_none(builds: Builds, tmp_path: Path) -> None:
    builds.ask()
    (memory,) = (tmp_path / "cache").iterdir()
    for content in ("", "[1", "[1]", '{"absent": "0"}'):
        memory.write_text(content)
        assert builds.ask() == []
    assert builds.number == 5


def test_a_memory_that_names_other_weights_is_none(builds: Builds, tmp_path: Path) -> None:
    file = tmp_path / "backbone.safetensors"
    file.write_bytes(weights_bytes(build_model(backbone="glyphnet", embedding_dim=16).backbone))
    builds.ask(f"model.weights={file}")
    (memory,) = (tmp_path / "cache").iterdir()
    memory.write_text("{}")
    assert builds.ask(f"model.weights={file}") == []
    assert builds.number == 2


def test_pretrained_weights_of_another_hub_folder_are_looked_for_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretrained, named = trial("model.backbone=resnet50", "model.weights=pretrained"), trial()
    key, key_of_named = model_check._key(pretrained), model_check._key(named)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert model_check._key(pretrained) != key
    assert model_check._key(named) == key_of_named


def test_a_memory_that_cannot_be_written_keeps_nobody_from_starting(builds: Builds, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert builds.ask() == builds.ask() == []
    assert builds.number == 2
