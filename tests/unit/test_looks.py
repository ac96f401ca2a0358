"""Every measurement on test classes is counted once, whoever made it, and none is forgotten."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from see_tune.errors import UserError
from see_tune.home import Home
from see_tune.looks import Look, count_look, read_looks
from see_tune.report.numbers import looked_at
from see_tune.results import Looks
from see_tune.studies import set_aside

FINAL = Look("feed", "cars", "final-see-t001-e3-s0", 3, 1.7e9)


def test_looks_are_counted_by_dataset_and_by_who_looked(tmp_path: Path) -> None:
    home = Home(tmp_path / "new")
    other_seed, other_study = replace(FINAL, model="final-see-t001-e3-s1"), replace(FINAL, study="cars-2")
    for look in (FINAL, other_seed, other_study, replace(FINAL, study="", model="champion"), replace(FINAL, fingerprint="beef")):
        count_look(home, look)
    assert read_looks(home, "feed") == Looks(times=3, studies=2, by_hand=1)
    assert read_looks(home, "beef") == Looks(times=1, studies=1, by_hand=0)
    assert read_looks(home, "none") == Looks(times=0, studies=0, by_hand=0)


def test_an_epoch_that_is_told_again_is_one_look_and_one_that_is_measured_again_is_two(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for look in (FINAL, FINAL, replace(FINAL, timestamp=FINAL.timestamp + 60)):
        count_look(home, look)
    assert read_looks(home, "feed").times == 2


def test_a_study_begun_anew_under_a_name_that_was_set_aside_is_another_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    count_look(home, FINAL)
    folder = home.study("cars").make()
    set_aside(folder)
    count_look(home, replace(FINAL, timestamp=FINAL.timestamp + 60))
    assert read_looks(home, "feed") == Looks(times=2, studies=2, by_hand=0)


def test_a_study_that_is_set_aside_before_any_look_leaves_no_list(tmp_path: Path) -> None:
    set_aside(Home(tmp_path).study("cars").make())
    assert not Home(tmp_path).looks_file.exists()


def test_a_line_that_was_cut_costs_no_other(tmp_path: Path) -> None:
    home = Home(tmp_path)
    count_look(home, FINAL)
    with home.looks_file.open("a") as stream:
        stream.write('{"fingerprint": "fe\n[]\n')
    count_look(home, replace(FINAL, epoch=4))
    assert read_looks(home, "feed").times == 2


def test_studies_that_count_side_by_side_lose_no_look(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from see_tune.home import Home; from see_tune.looks import Look, count_look\n"
        "for epoch in range(300): count_look(Home(Path(sys.argv[1])), Look('feed', sys.argv[2], 't000', epoch, float(epoch)))"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in ("one", "two")]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert read_looks(Home(tmp_path), "feed") == Looks(times=600, studies=2, by_hand=0)


def test_a_look_that_cannot_be_counted_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="must be counted"):
        count_look(Home(tmp_path / "file"), FINAL)


def test_looks_are_said_in_words() -> None:
    assert looked_at(Looks(12, 2, 1)) == "looked at 12 times by 2 studies, once by hand"
    assert looked_at(Looks(1, 1, 0)) == "looked at once by 1 study"
    assert looked_at(Looks(0, 0, 3)) == "looked at 3 times by hand"
