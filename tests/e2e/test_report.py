"""What a finished study is good for: its report, its champion, exports and an index, through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from see_tune.cli.app import main


@pytest.fixture(scope="module")
def pictures(home: Path) -> Path:
    """Some of the glyphs as files of a user's own."""
    from see_tune.data import read_table
    from see_tune.data.pictures import Images

    table = read_table("glyphs", places=(), cache=home / "cache")
    folder = home.parent / "pictures"
    folder.mkdir()
    images = Images(table)
    for row in range(0, 60, 2):
        images[row].save(folder / f"{row:03d}.png")
    return folder


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_report_shows_the_answer_and_the_gallery(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "small", "--home", str(home)]) == 0
    html, markdown = map(Path, capsys.readouterr().out.split())
    assert html == home / "studies/small/report.html"
    text, summary = markdown.read_text(), json.loads((home / "studies/small/summary.json").read_text())
    recall = 100 * summary["see"]["test"]["test/recall_at_1"][0]
    assert f"Test: R@1 of SEE {recall:.1f} over 1 seed" in text
    assert "one seed: no interval" in text
    assert html.read_text().count("<figure><img alt=") == 2
    assert "## Gallery" in text


def test_report_leaves_nothing_in_the_users_own_folder_and_says_nothing_of_the_engines(home: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    command = [sys.executable, "-m", "see_tune.cli.app", "report", "small", "--no-gallery", "--home", str(home)]
    environment = {name: value for name, value in os.environ.items() if name not in {"MPLCONFIGDIR", "XDG_CACHE_HOME"}}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment | {"HOME": str(user)})
    assert done.stderr == ""
    assert list(user.iterdir()) == []


def test_report_without_a_gallery_embeds_nothing(home: Path) -> None:
    assert main(["report", "small", "--no-gallery", "--home", str(home)]) == 0
    assert "## Gallery" not in (home / "studies/small/report.md").read_text()


def test_best_lists_the_champion_that_the_study_registered(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["best", "--json", "--home", str(home)]) == 0
    (champion,) = said(capsys)
    assert (champion["uri"], champion["champion"], champion["candidate"]["study"]) == ("models:/see-tune.glyphs/1", True, "small")
    assert main(["best", "glyphs", "--home", str(home)]) == 0
    assert "see-tune.glyphs/1  champion" in capsys.readouterr().out


def test_promote_names_the_champion_and_refuses_what_is_not_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["promote", "glyphs", "1", "--home", str(home)]) == 0
    assert "is version 1 now" in capsys.readouterr().out
    assert main(["promote", "glyphs", "7", "--home", str(home)]) == 2
    assert "has no version 7; see-tune best glyphs" in capsys.readouterr().err


def test_a_home_without_a_registry_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["best", "--home", str(tmp_path / "none")]) == 2
    assert "nothing was tracked" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_export_embeds_as_the_champion_does(home: Path, pictures: Path, tmp_path: Path) -> None:
    from see_tune.home import Home
    from see_tune.serving.standalone_torch import load_embedder
    from see_tune.stored import open_model

    assert main(["export", "glyphs", "--out", str(tmp_path / "export"), "--home", str(home)]) == 0
    files = sorted(pictures.glob("*.png"))
    champion = open_model("models:/see-tune.glyphs@champion", Home(home))
    expected = champion.embed(Image.open(file).convert("RGB") for file in files)
    np.testing.assert_allclose(load_embedder(tmp_path / "export").embed(files), expected, atol=1e-5)


def test_export_refuses_a_format_it_cannot_write(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "glyphs", "--format", "tflite", "--out", str(tmp_path / "x"), "--home", str(home)]) == 2
    assert "'safetensors', 'onnx'" in capsys.readouterr().err


def test_index_is_asked_updated_and_drawn(home: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index, picture = str(tmp_path / "index"), str(pictures / "000.png")
    assert main(["index", "glyphs", "--images", str(pictures), "--out", index, "--home", str(home)]) == 0
    assert "30 pictures (30 embedded now, 0 removed) by models:/see-tune.glyphs/1" in capsys.readouterr().out
    assert main(["query", index, picture, "--top", "3", "--json", "--sheet", str(tmp_path / "sheet.png")]) == 0
    (answer,) = said(capsys)
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2, 3]
    assert answer["hits"][0]["path"] == picture
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 4 * 96
    assert main(["index", "glyphs", "--images", str(pictures), "--out", index, "--update", "--json", "--home", str(home)]) == 0
    assert said(capsys) == {"model": "models:/see-tune.glyphs/1", "embedded": 0, "kept": 30, "removed": 0, "skipped": {}}


def test_compare_prints_a_table_for_a_paper(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "small", "--latex", "--home", str(home)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(r"\begin{tabular}{llrr")
    assert "small & SEE & " in printed
