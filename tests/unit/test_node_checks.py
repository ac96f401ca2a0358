"""What a node of a cluster must have: the same folders, pictures and versions as the driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from see_tune import node_checks
from see_tune.home import Home
from see_tune.node_checks import NodeView, check_nodes, look_around
from see_tune.search.nodes import Node
from see_tune.spec.models import DatasetSpec, TrialSpec

HEAD, WORKER = Node("head", "h", 0, 0), Node("worker", "w", 4, 0)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A `folder` dataset of two classes in train and two in test."""
    for split, name in (("train", "a"), ("train", "b"), ("test", "c"), ("test", "d")):
        for number in range(2):
            file = tmp_path / "pictures" / split / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (number, 0, 0)).save(file)
    return tmp_path / "pictures"


@pytest.fixture
def trial(pictures: Path) -> TrialSpec:
    return TrialSpec(dataset=DatasetSpec(name="folder", root=str(pictures)))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def problems(trial: TrialSpec, home: Home, monkeypatch: pytest.MonkeyPatch, there: Callable[..., Any] = look_around) -> list[str]:
    """Of one worker, where `there` runs in place of `look_around`."""

    def run_here(nodes: Sequence[Node], function: Any, *arguments: Any, timeout_s: float) -> dict[Node, Any]:
        return {node: there(node, *arguments) for node in nodes}

    monkeypatch.setattr(node_checks, "run_on_each", run_here)
    found = [str(problem) for problem in check_nodes([HEAD, WORKER], trial, home)]
    assert list(home.root.glob("seen-by-*")) == []
    return found


def test_node_that_is_as_it_should_be_has_no_problem(trial: TrialSpec, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(trial, home, monkeypatch) == []


def test_home_that_a_node_does_not_see_is_named(trial: TrialSpec, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = problems(trial, home, monkeypatch, lambda node, text, mark: look_around(node, text, f"{mark}-not-here"))
    assert line.startswith(f"node w: does not see the home folder {home.root} of the driver; mount one shared folder")


def test_home_of_the_same_path_that_is_not_shared_is_noticed(
    trial: TrialSpec, home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def there(node: Node, text: str, mark: str) -> NodeView:
        (tmp_path / "own" / Path(mark).name).mkdir(parents=True)
        return look_around(node, text, str(tmp_path / "own" / Path(mark).name))

    (line,) = problems(trial, home, monkeypatch, there)
    assert "has a home folder of its own under the driver's path" in line


def test_absent_and_broken_pictures_are_found_on_the_node(
    trial: TrialSpec, home: Home, monkeypatch: pytest.MonkeyPatch, pictures: Path
) -> None:
    def broken(node: Node, text: str, mark: str) -> NodeView:
        last = sorted(pictures.rglob("*.png"))[-1]
        whole = last.read_bytes()
        last.write_bytes(whole[:20])
        view = look_around(node, text, mark)
        last.write_bytes(whole)
        return view

    def absent(node: Node, text: str, mark: str) -> NodeView:
        pictures.rename(f"{pictures}.away")
        view = look_around(node, text, mark)
        Path(f"{pictures}.away").rename(pictures)
        return view

    (line,) = problems(trial, home, monkeypatch, broken)
    assert line.startswith("node w: ")
    assert ".png" in line
    (line,) = problems(trial, home, monkeypatch, absent)
    assert str(pictures) in line


def test_other_pictures_under_the_same_path_are_noticed(
    trial: TrialSpec, home: Home, monkeypatch: pytest.MonkeyPatch, pictures: Path
) -> None:
    def there(node: Node, text: str, mark: str) -> NodeView:
        shutil.copytree(pictures / "train/a", pictures / "train/more")
        view = look_around(node, text, mark)
        shutil.rmtree(pictures / "train/more")
        return view

    (line,) = problems(trial, home, monkeypatch, there)
    assert "has other pictures, labels or splits" in line


def test_other_versions_are_named(trial: TrialSpec, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def there(node: Node, text: str, mark: str) -> NodeView:
        view = look_around(node, text, mark)
        return NodeView({**view.versions, "torch": "1.0"}, view.fingerprint, view.problems)

    (line,) = problems(trial, home, monkeypatch, there)
    assert line.startswith("node w: has torch 1.0 and the driver ")


def test_node_that_cannot_answer_is_said_to_and_all_problems_are_listed(
    trial: TrialSpec, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = problems(trial, home, monkeypatch, lambda *arguments: ModuleNotFoundError("No module named 'see_tune'"))
    assert line.startswith("node w: could not be looked at (ModuleNotFoundError: No module named 'see_tune'); give it the image")


def test_cluster_without_a_worker_is_refused(trial: TrialSpec, home: Home) -> None:
    (problem,) = check_nodes([HEAD], trial, home)
    assert "no node of the cluster takes trials (h: 0 CPU)" in str(problem)
