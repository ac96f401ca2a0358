"""What can be said of a study before an engine is started."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from see_tune.errors import StudyError
from see_tune.holding import held, holder_of
from see_tune.home import Home, StudyFolder
from see_tune.looks import Look, count_look, read_looks
from see_tune.results import Looks, StudyResult
from see_tune.spec.load import Loaded, parse_study
from see_tune.studies import (
    begun_study,
    changed_settings,
    existing_study,
    finished_note,
    set_aside,
    settled,
    stored_result,
    study_names,
)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    made = Home(tmp_path).study("s").make()
    made.spec_file.write_text("study: s\n")
    return made


def test_set_aside_frees_the_name_and_keeps_every_file(folder: StudyFolder, tmp_path: Path) -> None:
    aside = set_aside(folder)
    assert not folder.root.exists()
    assert aside.name.startswith("s.20")
    assert (aside / "study.yaml").read_text() == "study: s\n"
    assert study_names(Home(tmp_path)) == (aside.name,)
    assert holder_of(StudyFolder(aside)) is None


def test_study_that_was_set_aside_does_not_go_on_under_its_new_folders_name(folder: StudyFolder, tmp_path: Path) -> None:
    folder.spec_file.write_text("study: s\ndataset: {name: glyphs}\nsearch: {see.n_aug: {int: [1, 4]}}\n")
    aside = set_aside(folder)
    with pytest.raises(StudyError, match=f"rename {aside} to s"):
        begun_study(Home(tmp_path), aside.name)


def test_running_study_is_not_set_aside(folder: StudyFolder) -> None:
    with held(folder), pytest.raises(StudyError, match="running already"):
        set_aside(StudyFolder(folder.root))
    assert folder.root.is_dir()


def test_absent_study_is_refused_with_those_that_are_there(folder: StudyFolder, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"no study 'x'.*there: s\."):
        existing_study(Home(tmp_path), "x")


def test_changed_settings_are_listed_without_the_search_space_that_is_told_of_elsewhere() -> None:
    text = "study: s\ndataset: {name: glyphs}\nsearch: {see.n_aug: {int: [1, 4]}}\n"
    before, other = parse_study(text, "s.yaml").spec, text.replace("[1, 4]", "[1, 8]") + "budget: {trials: 7}\nsee: {n_aug: 3}\n"
    assert changed_settings(before, before) == []
    assert changed_settings(before, parse_study(other, "s.yaml").spec) == [
        "changed since the last session:",
        f"  budget.trials: {before.budget.trials} -> 7",
    ]


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, see_tune.studies; print({'torch', 'ray', 'mlflow', 'optuna', 'scipy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


SEARCHED = """
study: s
dataset: {name: glyphs}
search: {see.n_aug: {int: [1, 4]}}
budget: {trials: 60, hours: 2}
final: none
"""


def ended(folder: StudyFolder, search_ended: str) -> StudyResult:
    """A study that ended after 4 of its 60 trials."""
    folder.spec_file.write_text(SEARCHED)
    counts = {"trials": 4, "complete": 4, "pruned": 0, "failed": 0, "failures": {}, "wall_s": 9.0, "device_hours": 0.1}
    names = {"study": "s", "dataset": "glyphs", "protocol": "honest", "status": "done", "folder": "", "tracking": ""}
    rest = {"see": None, "off": None, "gain": None, "champion": None, "champion_note": "", "undelivered": 0}
    stored = StudyResult(**counts, **names, **rest, tracking_problems=(), commands={}, search_ended=search_ended)
    folder.summary_file.write_text(stored.to_json())
    return stored


def asked(**more: str) -> Loaded:
    return parse_study(SEARCHED, "s.yaml", [f"{key}={value}" for key, value in more.items()])


@pytest.mark.parametrize("how", ["exhausted", "hours"])
def test_search_that_ended_before_its_last_trial_is_settled_and_says_why(folder: StudyFolder, tmp_path: Path, how: str) -> None:
    stored = ended(folder, how)
    assert settled(asked(), Home(tmp_path), "final") == stored
    assert settled(asked(**{"budget.trials": "99"}), Home(tmp_path), "final") == stored
    assert {"exhausted": "widen `search`", "hours": "--set budget.hours=MORE"}[how] in finished_note(stored)


@pytest.mark.parametrize(
    ("how", "more"),
    [
        ("", {}),
        ("exhausted", {"sampler.name": "random"}),
        ("exhausted", {"start_with": "[{see.n_aug: 2}]"}),
        ("hours", {"budget.hours": "3"}),
        ("exhausted", {"search": "{see.n_aug: {int: [1, 9]}}"}),
    ],
)
def test_search_that_may_find_more_is_not_settled(folder: StudyFolder, tmp_path: Path, how: str, more: dict[str, str]) -> None:
    ended(folder, how)
    assert settled(asked(**more), Home(tmp_path), "final") is None


@pytest.mark.parametrize(
    ("lineage", "until", "tried_again"),
    [
        ("t003", "final", False),
        ("baseline", "search", True),
        ("rerank-t001-f0of4", "search", False),
        ("rerank-t001-f0of4", "final", True),
    ],
)
def test_failure_beside_the_search_is_tried_again(
    folder: StudyFolder, tmp_path: Path, lineage: str, until: Literal["search", "final"], tried_again: bool
) -> None:
    stored = replace(ended(folder, "exhausted"), failures={lineage: "loss is nan"})
    folder.summary_file.write_text(stored.to_json())
    assert (settled(asked(), Home(tmp_path), until) is None) == tried_again


def test_a_study_goes_on_under_the_title_that_its_runs_are_tracked_under(folder: StudyFolder, tmp_path: Path) -> None:
    own = SEARCHED.replace("{name: glyphs}", "{name: folder, root: birds, title: birds}")
    folder.spec_file.write_text(own)
    assert settled(parse_study(own, "s.yaml"), Home(tmp_path), "final") is None
    for other in ("", ", title: fish"):
        with pytest.raises(StudyError, match=r"called birds.*undo the change.*--name s-2.*warm_start: \[s\]"):
            settled(parse_study(own.replace(", title: birds", other), "s.yaml"), Home(tmp_path), "final")


def test_an_answer_that_is_shown_again_has_the_looks_up_to_now(folder: StudyFolder, tmp_path: Path) -> None:
    look = Look("feed", "s", "final-see-t001-e3-s0", 3, 1.7e9)
    count_look(folder.home, look)
    folder.summary_file.write_text(replace(ended(folder, "trials"), test_looks=read_looks(folder.home, "feed")).to_json())
    count_look(folder.home, replace(look, study="", model="champion"))
    stored = stored_result(folder)
    assert stored is not None
    assert stored.test_looks == Looks(times=1, studies=1, by_hand=1)
