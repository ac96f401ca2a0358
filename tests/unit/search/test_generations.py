"""A changed search space goes on with what fits; another study's trials are points, and no rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from see_tune.errors import StudyError
from see_tune.home import Home
from see_tune.search import generations
from see_tune.search.generations import view_ledgers

Open = Callable[..., Any]


def changed(text: str, *replacements: tuple[str, str]) -> str:
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


NARROW = ("{float: [0.0, 2.0]}", "{float: [0.0, 1.0]}")
WIDE = ("{float: [0.0, 2.0]}", "{float: [0.0, 4.0]}")
ADDED = ("search:", "search:\n  train.optimizer.lr: {float: [1.0e-6, 1.0e-3], log: true}")


def optuna_study(folder: Path, name: str) -> optuna.Study:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{folder}/studies/small/optuna.db")


def test_unchanged_space_stays_in_its_generation(open_bench: Open, tmp_path: Path) -> None:
    open_bench().run(epochs=9)
    assert open_bench().carried.lines() == []
    assert generations.studies_of(f"sqlite:///{tmp_path}/studies/small/optuna.db", "small") == ["small"]


def test_widened_range_keeps_every_row_and_is_sampled_beyond_its_old_end(open_bench: Open, study_text: str) -> None:
    first = open_bench(until="search")
    first.run()
    text = changed(study_text, WIDE, ("trials: 6", "trials: 16"))
    wider = open_bench(text + "sampler: {name: random}\n", until="search")
    assert wider.carried.kept == tuple(f"t{number:03d}" for number in range(6))
    assert {row.lineage: row.value for row in wider.search.finished()} == {
        row.lineage: row.value for row in first.search.finished()
    }
    wider.run()
    assert max(row.values["see.lambda"] for row in wider.search.finished()) > 2.0


def test_narrowed_range_leaves_out_what_lies_outside_and_its_budget_is_free_again(open_bench: Open, study_text: str) -> None:
    first = open_bench(until="search")
    first.run()
    inside = {row.lineage for row in first.search.finished() if row.values["see.lambda"] <= 1.0}
    narrow = open_bench(changed(study_text, NARROW), until="search")
    assert set(narrow.carried.kept) == inside
    assert set(narrow.carried.left) == {f"t{number:03d}" for number in range(6)} - inside
    assert narrow.carried.left
    narrow.run()
    lineages = [row.lineage for row in narrow.search.finished()]
    assert len(lineages) == 6
    assert min(set(lineages) - inside) == "t006"  # no lineage, and so no checkpoint folder, is used twice


def test_space_that_is_widened_again_finds_the_rows_that_had_left_it(open_bench: Open, study_text: str) -> None:
    open_bench(until="search").run()
    open_bench(changed(study_text, NARROW), until="search")
    again = open_bench(until="search")
    assert again.carried.kept == tuple(f"t{number:03d}" for number in range(6))


def test_added_parameter_has_in_finished_trials_the_value_that_was_fixed(open_bench: Open, study_text: str) -> None:
    open_bench(until="search").run()
    more = open_bench(changed(study_text, ADDED), until="search")
    assert len(more.carried.kept) == 6
    own = more.protocol._base.train.optimizer.lr
    assert {row.values["train.optimizer.lr"] for row in more.search.finished()} == {own}


def test_added_parameter_keeps_its_former_value_though_the_file_has_another_now(open_bench: Open, study_text: str) -> None:
    first = open_bench(until="search")
    first.run()
    text = changed(study_text, ADDED, ("train: {epochs: 4}", "train: {epochs: 4, optimizer: {lr: 5.0e-4}}"))
    more = open_bench(text, until="search")
    assert {row.values["train.optimizer.lr"] for row in more.search.finished()} == {first.protocol._base.train.optimizer.lr}


def test_baseline_is_trained_anew_where_its_own_values_have_moved(open_bench: Open, study_text: str) -> None:
    searched = changed(study_text, ADDED)
    open_bench(searched, until="search").run()
    fixed = changed(study_text, ("train: {epochs: 4}", "train: {epochs: 4, optimizer: {lr: 5.0e-4}}"))
    after = open_bench(fixed, until="search")
    after.run()
    assert after.recorder.specs["baseline-g2"].train.optimizer.lr == 5.0e-4
    assert after.protocol.baseline().lineage == "baseline-g2"


def test_cut_row_goes_on_in_the_new_space_and_is_not_judged_twice(open_bench: Open, study_text: str) -> None:
    cut = open_bench(until="search")
    cut.run(epochs=4 + 4 + 2)  # the baseline, t000, two epochs of t001
    wider = open_bench(changed(study_text, WIDE), until="search")
    assert (wider.carried.kept, wider.carried.resumed) == (("t000",), ("t001",))
    assert wider.search.cut()[0].judged_epochs == 2
    wider.run()
    assert [row.lineage for row in wider.search.finished()] == [f"t{number:03d}" for number in range(6)]


def test_cut_row_outside_the_new_space_is_named_and_never_handed_out(open_bench: Open, study_text: str) -> None:
    text = changed(study_text, ("search:", "start_with: [{see.lambda: 1.9}]\nsearch:"))
    open_bench(text, until="search").run(epochs=4 + 4 + 1)
    narrow = open_bench(changed(study_text, NARROW), until="search")
    assert narrow.carried.abandoned == ("t001",)
    narrow.run()
    assert "t001" not in {row.lineage for row in narrow.search.finished()}


def test_generation_that_was_killed_while_it_was_begun_is_begun_anew(
    open_bench: Open, study_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_bench(until="search").run()
    with monkeypatch.context() as patch:
        patch.setattr(generations, "_changes", lambda *specs: 1 / 0)  # after the rows were added, before the last step
        with pytest.raises(ZeroDivisionError):
            open_bench(changed(study_text, NARROW), until="search")
    assert len(optuna_study(tmp_path, "small/g2").trials) > 0
    wider = open_bench(changed(study_text, WIDE), until="search")
    assert len(wider.carried.kept) == 6
    assert Counter(row.lineage for row in wider.search.finished()).most_common(1)[0][1] == 1


def test_kept_rows_stand_on_no_rung(open_bench: Open, study_text: str) -> None:
    open_bench(until="search").run()
    wider = open_bench(changed(study_text, WIDE, ("trials: 6", "trials: 7")), until="search")
    lineage = wider.search.ask().lineage
    assert not wider.search.report(lineage, 2, 0.0)  # alone on the rung; beside six better rows it would be stopped


def test_kept_rows_can_win(open_bench: Open, study_text: str) -> None:
    first = open_bench()
    first.run()
    wider = open_bench(changed(study_text, WIDE))
    wider.run()
    assert wider.recorder.ended == []
    assert wider.protocol.winner() == first.protocol.winner()


def test_changes_are_told_with_both_entries(open_bench: Open, study_text: str) -> None:
    open_bench(until="search").run(epochs=9)
    lines = open_bench(changed(study_text, NARROW), until="search").carried.lines()
    assert "1 finished trial fits and is kept, 0 do not" in lines[0]
    assert lines[1] == "  search.see.lambda: {float: [0.0, 2.0]} -> {float: [0.0, 1.0]}"


# Warm start

WARM = ("study: small", "study: warm\nwarm_start: [small]")


def test_warm_start_makes_points_that_are_no_rows(open_bench: Open, study_text: str, tmp_path: Path) -> None:
    open_bench(until="search").run()
    for _ in range(2):  # each start tells of them; they are there once
        warm = open_bench(changed(study_text, WARM), until="search")
        assert warm.known == 6
    assert (warm.search.finished(), warm.search.started()) == ((), 0)
    study = optuna.load_study(study_name="warm", storage=f"sqlite:///{tmp_path}/studies/warm/optuna.db")
    assert sum("known" in trial.user_attrs for trial in study.trials) == 6
    warm.run()
    assert [row.lineage for row in warm.search.finished()] == [f"t{number:03d}" for number in range(6)]


def test_warm_start_tells_each_search_of_its_own_side(open_bench: Open, study_text: str, tmp_path: Path) -> None:
    with_lr = ("search:", "search:\n  train.optimizer.lr: {float: [1.0e-5, 1.0e-2], log: true}")
    open_bench(changed(study_text, with_lr), until="search").run()
    warm = open_bench(changed(study_text, with_lr, WARM), until="search")
    assert warm.known == 6 + 6
    study = optuna.load_study(study_name="warm/off", storage=f"sqlite:///{tmp_path}/studies/warm/optuna.db")
    known = {trial.user_attrs["known"] for trial in study.trials if "known" in trial.user_attrs}
    assert known == {f"small o{number:03d}" for number in range(6)}
    warm.run()
    assert sum(lineage.startswith("o") for lineage, _ in warm.recorder.ended) == 6


def test_warm_start_takes_what_fits(open_bench: Open, study_text: str) -> None:
    first = open_bench(until="search")
    first.run()
    warm = open_bench(changed(study_text, WARM, NARROW), until="search")
    assert warm.known == sum(row.values["see.lambda"] <= 1.0 for row in first.search.finished()) < 6


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        (("epochs: 4", "epochs: 5"), "train.epochs: 4, here 5"),
        (("classes: 40", "classes: 20"), "dataset.classes: 40, here 20"),
        (("search:", "objective: val_map_at_r\nsearch:"), "objective"),
        (("[small]", "[absent]"), "no such study"),
        (("[small]", "[warm]"), "knows its own trials"),
    ],
)
def test_warm_start_from_what_is_not_comparable_is_refused(
    open_bench: Open, study_text: str, change: tuple[str, str], fragment: str
) -> None:
    open_bench(until="search").run(epochs=9)
    with pytest.raises(StudyError, match=fragment):
        open_bench(changed(study_text, WARM, change))


# Looking on


def test_view_sees_a_running_study_and_changes_nothing(open_bench: Open, tmp_path: Path) -> None:
    bench = open_bench()
    bench.run(epochs=4 + 4 + 2)
    folder = Home(tmp_path).study("small")
    before = folder.optuna_db.read_bytes()
    search, final, _ = view_ledgers(folder, "small")
    (out,) = search.running()
    assert (out.lineage, max(out.curve)) == ("t001", 2)
    assert [row.lineage for row in final.finished()] == ["baseline"]
    assert folder.optuna_db.read_bytes() == before
    with pytest.raises(Exception, match="commit"):
        search._study.ask()


def test_view_of_a_study_before_its_first_row_is_none(tmp_path: Path) -> None:
    assert view_ledgers(Home(tmp_path).study("small"), "small") is None
