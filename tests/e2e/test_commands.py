"""The commands beside `run`, and what each says to wrong input: exit 2, one message, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from see_tune.cli.app import main

ROOT = Path(__file__).parents[2]
SPACES = sorted((ROOT / "search_spaces").glob("*.yaml"))
GLYPHS = str(ROOT / "search_spaces/glyphs.yaml")
SMALL = ("--set", "dataset.classes=24", "--set", "train.epochs=1")


@pytest.mark.parametrize("file", SPACES, ids=lambda file: file.stem)
def test_every_shipped_file_is_valid_without_its_data(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(file)]) == 0
    assert capsys.readouterr().out.startswith(f"{file}: valid.")


@pytest.mark.parametrize("file", [file for file in SPACES if file.stem != "glyphs"], ids=lambda file: file.stem)
def test_missing_root_is_said_at_run_with_the_places_looked_in(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEE_TUNE_DATA", str(tmp_path / "shared"))
    assert main(["run", str(file), "--home", str(tmp_path / "home")]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / "shared") in said
    assert str(tmp_path / "data") in said
    assert "SEE_TUNE_DATA" in said
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["run", "nope.yaml"], "nope.yaml: no such file"),
        (["run", GLYPHS, "--trials", "0"], "--trials"),
        (["run", GLYPHS, "--trials", "x"], "found 'x'; valid: a whole number"),
        (["run", GLYPHS, "--trials", str(10**9)], "--trials 1000000000: budget.trials: "),
        (["run", GLYPHS, "--until", "never"], "'never' is not one of 'search', 'final'"),
        (["run", GLYPHS, "--smoke", "--trials", "9"], "leave one of the two out"),
        (["run", GLYPHS, "--dry-run", "--address", "auto"], "leave --address out"),
        (["run", GLYPHS, "--home", ""], "'--home': it is empty"),
        (["run", GLYPHS, "--name", ""], "--name : study: found the text ''"),
        (["train", GLYPHS, "--folder", "a-file/below"], "a-file/below cannot be written"),
        (["list", "--home", "absent"], "there is no home folder"),
        (["export", "glyphs", "--out", "x", "--format", "tf"], "'tf' is not one of 'safetensors', 'onnx'"),
        (["best", "my glyphs"], "no dataset can be called 'my glyphs'"),
        (["promote", "my/glyphs", "1"], "no dataset can be called 'my/glyphs'"),
        (["run", GLYPHS, "--set", "see.n_agu=3"], "did you mean see.n_aug"),
        (["run", GLYPHS, "--set", "see.n_aug"], "see.n_aug"),
        (["run", GLYPHS, "--name", "Not A Name"], "--name Not A Name: study: "),
        (["run", GLYPHS, "--set", "model.backbone=resnet5O"], "resnet50"),
        (["run", GLYPHS, "--set", "model.weights=absent.safetensors"], "absent.safetensors"),
        (["run", GLYPHS, "--set", "resources.gpus=2"], "resources.gpus"),
        (["run", GLYPHS, "--set", "dataset.classes=12"], "folds"),
        (["run", GLYPHS, "--home", "a-file"], "a-file cannot be written"),
        (["run", GLYPHS, "--home", "a-file/below"], "cannot be written"),
        (["run", GLYPHS, "--smoke", "--home", "a-file"], "a-file cannot be written"),
        (["run", GLYPHS, "--set", "resources.cpus=4096"], "4,096 cores and"),
        (["run", GLYPHS, "--home", "what?"], "what? has ? in its path"),
        (["train", GLYPHS, "--home", "a-file"], "a-file cannot be written"),
        (["rum", GLYPHS], "Did you mean 'run'"),
        (["evaluate", "absent", "--dataset", "f o"], "no dataset can be called 'f o'"),
        (["datasets", "check", "glyphs", "--home", "a-file"], "a-file cannot be written"),
        (["evaluate", "absent"], "there is no model 'absent'"),
        (["evaluate", "."], "'.' is no training with a model: best.safetensors does not exist"),
        (["query", ".", "absent.jpg"], "make one with see-tune index DATASET --images DIR --out INDEX"),
        (["evaluate", "models:/cars@champion"], "names no version"),
        (["evaluate", "models:/see-tune.cars196@champion"], "is not in the registry"),
        (["ui"], "see-tune run"),
        (["datasets", "check", "cub"], "no dataset 'cub'"),
        (["datasets", "check", "cub200"], "CUB_200_2011"),
        (["datasets", "check", "glyphs", "--root", "."], "glyphs is embedded and read from no folder; leave --root out"),
        (["datasets", "sample", "glyphs", "--root", ".", "--out", "x.png"], "glyphs is embedded"),
        (["datasets", "sample", "glyphs", "--out", "no/such/folder.png"], "no/such/folder.png"),
        (["datasets", "sample", "glyphs", "--out", "x.svg"], "x.svg names no kind of picture; its suffix is to be .png, .jpg"),
        (["query", ".", "a.jpg", "--sheet", "x"], "x names no kind of picture; its suffix is to be .png, .jpg"),
        (["datasets", "split", "--root", "absent", "--out", "x.csv"], "absent"),
    ],
    ids=lambda value: "-".join(value)[-40:].replace("/", "_") if isinstance(value, list) else "",
)
def test_wrong_input_is_one_message_and_exit_2(
    arguments: list[str],
    fragment: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEE_TUNE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SEE_TUNE_DATA", raising=False)
    (tmp_path / "a-file").touch()
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert fragment in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["best"],
        ["promote", "glyphs", "1"],
        ["evaluate", "models:/see-tune.glyphs@champion"],
        ["export", "glyphs", "--out", "x"],
        ["index", "glyphs", "--images", ".", "--out", "x"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_tracking_server_that_is_away_is_one_message_and_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--tracking", "http://127.0.0.1:9", "--home", "home"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("see-tune: the tracking server http://127.0.0.1:9 is away")
    assert len(said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_dry_run_asks_the_tracking_server_and_goes_on_without_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    away = ["--set", "tracking.uri=http://127.0.0.1:9"]
    assert main(["run", GLYPHS, "--dry-run", "--json", *away, "--home", str(tmp_path / "home")]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["server"].startswith("away; will spool")
    assert "note: the tracking server http://127.0.0.1:9 is away" in said.err


def test_dry_run_says_what_would_run_and_starts_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", GLYPHS, "--dry-run", "--home", str(tmp_path / "home")]) == 0
    said = capsys.readouterr().out
    for part in ("see.n_aug", "12 of 8 epochs", "final 5 seeds x 2", str(tmp_path / "home/studies/glyphs"), "mlflow.db"):
        assert part in said
    assert list(tmp_path.iterdir()) == []


def test_dry_run_refuses_all_that_run_would_below_its_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = ["model.backbone=resnet5O", "resources.gpus=1", "resources.cpus=4096", "warm_start=[absent]"]
    arguments = [part for assignment in wrong for part in ("--set", assignment)]
    assert main(["run", GLYPHS, "--dry-run", "--json", *arguments, "--home", str(tmp_path / "home")]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["study"] == "glyphs"
    for part in ("resnet50", "1 GPU and this machine has 0", "4,096 cores", "warm_start: [absent]: there is no such study"):
        assert part in said.err
    assert list(tmp_path.iterdir()) == []


def test_dry_run_of_an_absent_dataset_says_it_as_run_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEE_TUNE_DATA", raising=False)
    assert main(["run", str(ROOT / "search_spaces/cub.yaml"), "--dry-run"]) == 2
    said = capsys.readouterr()
    assert "deit_small" in said.out
    assert str(tmp_path / "data/cub200") in said.err


def test_dry_run_of_a_smoke_run_names_no_place_that_will_be_gone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", GLYPHS, "--smoke", "--dry-run", "--json", "--home", str(tmp_path)]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["results"] == f"a throw-away folder in {tmp_path}"
    assert plan["trials"].startswith("2 of 2 epochs")


@pytest.mark.parametrize("anew", ["--smoke", "--fresh"])
def test_dry_run_of_a_study_begun_anew_asks_nothing_of_the_one_there_is(
    anew: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "studies" / "glyphs"
    folder.mkdir(parents=True)
    folder.joinpath("study.yaml").write_text("study: glyphs\ndataset: {name: glyphs}\nsearch: {see.n_aug: {int: [1, 2]}}\n")
    folder.joinpath("optuna.db").touch()
    other = ["--set", "storage=journal", "--set", "seed=7"]
    assert main(["run", GLYPHS, "--dry-run", "--json", *other, "--home", str(tmp_path)]) == 2
    capsys.readouterr()
    assert main(["run", GLYPHS, "--dry-run", "--json", anew, *other, "--home", str(tmp_path)]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["study"], plan["storage"]) == ("glyphs", "journal")
    assert sorted(path.name for path in folder.iterdir()) == ["optuna.db", "study.yaml"]


def test_smoke_run_leaves_nothing_and_prints_no_place_that_is_gone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few = ["--set", "dataset.classes=24", "--set", "data.workers=0", "--set", "warm_start=[an-earlier-one]"]
    assert main(["run", GLYPHS, "--smoke", "--json", *few, "--home", str(tmp_path)]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out)
    assert (result["complete"], result["folder"], result["tracking"], result["commands"]) == (2, "", "", {})
    assert "smoke: it runs; the throw-away study is gone" in said.err
    assert [path.name for path in tmp_path.iterdir()] == []


def test_measured_dry_run_says_how_long_search_and_final_phase_take(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = ["--set", "dataset.classes=40", "--set", "data.workers=0"]
    assert main(["run", GLYPHS, "--dry-run", "--measure", "--json", *small, "--home", str(tmp_path)]) == 0
    said = capsys.readouterr()
    plan = json.loads(said.out)
    assert "s, measured on cpu with" in plan["an epoch"]
    assert "of training, SEE off beside it included" in plan["search takes"]
    assert plan["then takes"].startswith("at most ")
    assert "training one epoch of trial 0" in said.err
    assert not (tmp_path / "studies").exists()


def test_measure_without_dry_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", GLYPHS, "--measure"]) == 2
    assert "belongs to --dry-run" in capsys.readouterr().err


def test_dry_run_as_json_is_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", GLYPHS, "--dry-run", "--json", "--name", "other", "--home", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == "other"


def test_dry_run_of_the_papers_protocol_says_on_what_it_chooses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", GLYPHS, "--dry-run", "--set", "protocol=paper", "--home", str(tmp_path)]) == 0
    assert "on the test classes" in capsys.readouterr().out


def test_train_runs_one_trial_with_the_files_own_values(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", GLYPHS, *SMALL, "--home", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "epoch   1/1" in said
    assert "best: val/recall_at_1" in said


def test_train_into_the_folder_of_another_trial_is_the_users_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    into = ["--folder", str(tmp_path / "t"), "--home", str(tmp_path)]
    assert main(["train", GLYPHS, *SMALL, *into]) == 0
    assert main(["train", GLYPHS, *SMALL, "--set", "see.lambda=0.5", *into]) == 2
    assert "t holds a trial with another spec" in capsys.readouterr().err


def test_train_with_see_off_asks_nothing_of_what_the_file_searches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", GLYPHS, *SMALL, "--set", "see.enabled=false", "--home", str(tmp_path)]) == 0
    assert "best: val/recall_at_1" in capsys.readouterr().out


def test_a_home_that_nobody_named_may_be_absent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEE_TUNE_HOME", raising=False)
    assert main(["list"]) == 0
    assert "no study in" in capsys.readouterr().out


def test_train_of_a_diverging_trial_is_exit_1_with_the_cause(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    diverging = ("--set", "train.optimizer.lr=1e30", "--set", "train.optimizer.clip_value=null")
    assert main(["train", GLYPHS, *SMALL, *diverging, "--home", str(tmp_path)]) == 1
    assert "the trial failed" in capsys.readouterr().err


def test_datasets_are_listed_with_what_each_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {"cub200", "cars196", "sop", "inshop", "folder", "manifest", "glyphs"}
    assert rows["sop"]["ks"] == [1, 10, 100, 1000]


def test_check_of_the_embedded_glyphs_finds_nothing_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["datasets", "check", "glyphs", "--home", str(tmp_path)]) == 0
    assert "nothing wrong" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "format_"), [("x.png", "PNG"), ("x.JPG", "JPEG"), ("x.webp", "WEBP")])
def test_a_sheet_is_what_its_suffix_says(name: str, format_: str, tmp_path: Path) -> None:
    few = ["--classes", "2", "--home", str(tmp_path)]
    assert main(["datasets", "sample", "glyphs", "--out", str(tmp_path / name), *few]) == 0
    with Image.open(tmp_path / name) as written:
        assert written.format == format_


def test_help_imports_no_engine_and_is_quick() -> None:
    watched = (
        "import sys, see_tune.cli.app; print(sorted({'torch', 'ray', 'mlflow', 'optuna', 'numpy', 'timm'} & set(sys.modules)))"
    )
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", watched], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert time.perf_counter() - started < 5  # it takes 0.4 s; the bound only catches an engine that slipped in


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("see-tune ")


def test_full_disk_is_one_message_and_exit_1() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "see_tune.cli.app", "schema"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "see-tune: No space left on device. Make room there or make it writable, or choose --home\n",
    )


def test_reader_who_has_read_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "see_tune.cli.app", "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writing:
        assert writing.stdout is not None
        assert writing.stderr is not None
        writing.stdout.close()
        assert writing.stderr.read() == ""
