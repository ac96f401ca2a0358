"""Before the first trial: everything that would fail later, in one list."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from see_tune import checks
from see_tune.checks import preflight
from see_tune.errors import SpecError, StudyError, UserError, WeightsError
from see_tune.home import Home
from see_tune.spec.load import parse_study, trial_values

STUDY = """
study: small
dataset: {name: glyphs, classes: 40}
model: {backbone: glyphnet, weights: none, embedding_dim: 16}
train: {epochs: 2}
search: {see.n_aug: {int: [1, 15]}}
"""


def check(tmp_path: Path, more: str = "", overrides: tuple[str, ...] = (), **named: object) -> tuple[str, ...]:
    spec = parse_study(STUDY + more, "study.yaml", overrides).spec
    return preflight(spec, trial_values(spec), Home(tmp_path), **named).notes  # type: ignore[arg-type]


@pytest.fixture
def on_nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "network_file_system", lambda folder: "nfs4")


def test_sqlite_on_a_network_file_system_is_refused_with_the_ways_out(tmp_path: Path, on_nfs: None) -> None:
    with pytest.raises(StudyError, match=r"lies on nfs4.*storage: journal .*postgresql\+psycopg://.*--home DIR"):
        check(tmp_path)


def test_journal_on_a_network_file_system_may_run_and_mlflows_file_is_noted(tmp_path: Path, on_nfs: None) -> None:
    assert any("tracking.uri: local" in note for note in check(tmp_path, "storage: journal"))
    assert not any("tracking.uri" in note for note in check(tmp_path, "storage: journal\ntracking: {uri: 'http://mlflow:5000'}"))


def test_both_builds_of_faiss_are_refused_before_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Build:
        def __init__(self, name: str) -> None:
            self.name = name

    builds = [Build("faiss-cpu"), Build("faiss_gpu")]
    monkeypatch.setattr("see_tune.machine.distributions", lambda: builds)
    with pytest.raises(UserError, match="faiss-cpu and faiss-gpu are both installed"):
        check(tmp_path)


def pictures(root: Path, *rows: str) -> str:
    """A manifest of these ``label,split`` and a picture for each, as the override that names it."""
    root.mkdir()
    lines = [f"{number}.png,{row}" for number, row in enumerate(rows)]
    (root / "manifest.csv").write_text("path,label,split\n" + "\n".join(lines) + "\n")
    for number in range(len(rows)):
        Image.new("RGB", (8, 8), (10 * number, 0, 0)).save(root / f"{number}.png")
    return f"dataset={{name: manifest, root: {root}}}"


@pytest.fixture
def untested(tmp_path: Path) -> str:
    """A manifest of 4 training classes and no test classes."""
    return pictures(tmp_path / "pictures", *(f"{number % 4},train" for number in range(8)))


def test_dataset_that_the_final_runs_cannot_use_is_refused_before_the_search(tmp_path: Path, untested: str) -> None:
    with pytest.raises(UserError, match=r"no test classes(.|\n)*final: none"):
        check(tmp_path, overrides=(untested,))
    check(tmp_path, overrides=(untested, "final=none"))


def test_a_test_split_that_cannot_be_scored_is_refused_before_the_search(tmp_path: Path) -> None:
    lonely = pictures(tmp_path / "pictures", *(f"{number % 8},train" for number in range(16)), "x,test", "y,test", "z,test")
    with pytest.raises(UserError, match="no class of the test split has two images"):
        check(tmp_path, overrides=(lonely,))


def test_every_fold_of_the_search_is_split_before_the_first_trial(tmp_path: Path) -> None:
    """Two of eight classes have two images: at least two of the four folds hold none of them."""
    rows = pictures(tmp_path / "pictures", *(f"{label},train" for label in (0, 0, 1, 1, 2, 3, 4, 5, 6, 7)))
    for seed in range(4):
        with pytest.raises(UserError, match="no class of the held-out training classes has two images"):
            check(tmp_path, "validation: {folds: 4}", overrides=(rows, "final=none", f"seed={seed}"))


@pytest.mark.parametrize("on_corrupt", ["fail", "skip"])
def test_images_are_decoded_only_when_nothing_else_is_wrong(
    tmp_path: Path, untested: str, monkeypatch: pytest.MonkeyPatch, on_corrupt: str
) -> None:
    opened: list[Path] = []
    monkeypatch.setattr("see_tune.data.inspection.open_rgb", opened.append)
    sound = (untested, f"dataset.on_corrupt={on_corrupt}", "final=none")
    with pytest.raises(UserError, match="resnet5O"):
        check(tmp_path, overrides=(*sound, "model.backbone=resnet5O"))
    assert opened == []
    check(tmp_path, overrides=sound)
    assert len(opened) == 8


def test_what_is_left_of_a_dataset_without_its_broken_images_is_split_too(tmp_path: Path, untested: str) -> None:
    for number in (3, 7):
        (tmp_path / "pictures" / f"{number}.png").write_bytes(b"")
    with pytest.raises(UserError, match="3 training classes, too few to hold any out"):
        check(tmp_path, overrides=(untested, "dataset.on_corrupt=skip", "final=none"))


def test_all_that_is_wrong_is_one_list(tmp_path: Path, on_nfs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "databricks")
    with pytest.raises(UserError) as caught:
        check(tmp_path, "resources: {gpus: 1}", gpus={"a": 0, "b": 0}, elsewhere=lambda: [UserError("node b: is ill")])
    lines = [line[4:].split(":")[0] for line in str(caught.value).splitlines()[1:]]
    assert lines == ["storage", "the environment's MLFLOW_TRACKING_URI", "node b", "resources.gpus"]
    assert "a has 0, b has 0" in str(caught.value)


WRONG = ("model.backbone=resnet5O", "resources.gpus=1", "dataset.name=cub200", "dataset.root=/absent", "dataset.classes=null")


def test_an_absent_dataset_hides_nothing_else_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        check(tmp_path, overrides=WRONG, gpus={"a": 0})
    found = [line[4:].split(" ")[0] for line in str(caught.value).splitlines() if line.startswith("  - ")]
    assert found == ["dataset", "model.backbone", "resources.gpus:"]


def test_checks_that_are_not_thorough_leave_nothing_and_fetch_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("see_tune.models._load_pretrained", lambda backbone: pytest.fail("weights were fetched"))
    pretrained = ("model.backbone=resnet18", "model.weights=pretrained", "dataset.on_corrupt=skip")
    check(tmp_path / "home", overrides=pretrained, thorough=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(WeightsError, match="timm has none for glyphnet"):
        check(tmp_path / "home", overrides=("model.weights=pretrained",), thorough=False)


def test_a_micro_batch_that_is_not_exact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"train\.micro_batch 10: .*freeze_bn"):
        check(tmp_path, overrides=("train.micro_batch=10",))


def test_images_too_small_for_the_backbone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"vit_tiny_patch16_224 cannot be built for images of 8 px.*data\.image_size"):
        check(tmp_path, overrides=("data.image_size=8", "model.backbone=vit_tiny_patch16_224"))
