"""Whatever is cut, wherever: each piece of work finishes once, with the values it would have had."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

# One study of six trials, its re-ranking and its final phase: 24 + 4 + 24 + at most 24 epochs where nothing is pruned.
EPOCHS_IN_ALL = 76


@pytest.fixture(scope="module")
def uncut(build_bench: Callable[..., Any]) -> Any:
    with tempfile.TemporaryDirectory(dir=_quick_folder()) as folder:
        bench = build_bench(Path(folder))
        bench.run()
        return {row.lineage: row.value for row in bench.search.finished()}


def _quick_folder() -> str | None:
    """Memory where there is some: a commit of sqlite waits for the disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@given(st.lists(st.integers(0, EPOCHS_IN_ALL // 2), max_size=3))
@settings(deadline=None, max_examples=6)
def test_study_cut_any_number_of_times_ends_with_each_lineage_once(
    build_bench: Callable[..., Any], uncut: dict[str, float], cuts: list[int]
) -> None:
    folder = Path(tempfile.mkdtemp(dir=_quick_folder()))
    try:
        finished: dict[str, float | None] = {}
        for cut in cuts:
            bench = build_bench(folder)
            bench.run(epochs=cut)
            assert finished.items() <= values(bench).items()  # what had finished is as it was
            finished = values(bench)
        last = build_bench(folder)
        last.run()
        assert finished.items() <= values(last).items()
        assert [row.lineage for row in last.search.finished()] == [f"t{number:03d}" for number in range(6)]
        assert last.search.started() == 6
        lineages = Counter(row.lineage for row in last.final.finished())
        assert set(lineages.values()) == {1}
        assert len(lineages) == 1 + 3 * 2 + 2 * 3
        assert last.search.finished()[0].value == uncut["t000"]  # the file's own values: no sampler has a part in it
        assert states(folder) <= {"COMPLETE", "PRUNED", "FAIL"}
        again = build_bench(folder)
        again.run()
        assert again.recorder.ended == []
    finally:
        shutil.rmtree(folder)


# Points in a fixed order, so that a study that was cut tries the same ones; each epoch takes a second.
GRID = ("{int: [1, 15]}", "{choice: [2, 8]}"), ("{float: [0.0, 2.0]}", "{choice: [0.2, 0.7, 1.1]}")
BUDGETS = {
    "trials": ("budget: {trials: 6}", "sampler: {name: grid}\nbudget: {trials: 5}"),
    "device_hours": ("budget: {trials: 6}", f"sampler: {{name: grid}}\nbudget: {{trials: 6, device_hours: {9 / 3600}}}"),
    "hours": ("budget: {trials: 6}\n", f"sampler: {{name: grid}}\nbudget: {{trials: 6, hours: {9 / 3600}}}\n"),
}


@given(st.sampled_from(sorted(BUDGETS)), st.lists(st.integers(0, 15), min_size=1, max_size=3))
@settings(deadline=None, max_examples=6)
def test_study_that_was_cut_ends_with_the_rows_and_the_plan_of_one_that_was_not(
    build_bench: Callable[..., Any], build_clock: Callable[[], Any], study_text: str, budget: str, cuts: list[int]
) -> None:
    for old, new in (*GRID, BUDGETS[budget]):
        study_text = study_text.replace(old, new)
    if budget == "hours":  # else the baseline's seconds would count where it ran in the session of a trial
        study_text = study_text.replace("final: {seeds: 3}", "final: {seeds: 3, baseline: none}")
    clock = build_clock()

    def end(cuts: list[int]) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory(dir=_quick_folder()) as folder:
            for cut in (*cuts, None):
                clock.now += 10**6  # nobody's time
                bench = build_bench(Path(folder), study_text)
                bench.clock = clock
                bench.run(epochs=cut)
            searched = [(row.lineage, dict(row.values), row.result.status, row.value) for row in bench.search.finished()]
            planned = {row.lineage: (dict(row.plan), row.value) for row in bench.final.finished()}
            return searched, planned, bench.protocol.search_ended(), bench.final.withdrawn()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("see_tune.search.ledger.time", clock)
        uncut = end([])
        assert uncut[2] == budget
        assert end(cuts) == uncut


def values(bench: Any) -> dict[str, float | None]:
    return {row.lineage: row.value for row in (*bench.search.finished(), *bench.final.finished())}


def states(folder: Path) -> set[str]:
    storage = f"sqlite:///{folder}/studies/small/optuna.db"
    names = optuna.get_all_study_names(storage)
    return {trial.state.name for name in names for trial in optuna.load_study(study_name=name, storage=storage).trials}


def test_unfinished_planned_rows_wait_for_their_phase(build_bench: Callable[..., Any], study_text: str, tmp_path: Path) -> None:
    """A study cut in its final phase and extended searches first: no test class is met before the winner is chosen anew."""
    cut = build_bench(tmp_path)
    cut.run(epochs=EPOCHS_IN_ALL - 20)
    extended = build_bench(tmp_path, study_text.replace("trials: 6", "trials: 8"))
    extended.run()
    order = [lineage for lineage, _ in extended.recorder.ended]
    assert max(order.index("t006"), order.index("t007")) < min(n for n, name in enumerate(order) if name.startswith("final"))
    assert set(extended.final.withdrawn()) <= cut.recorder.specs.keys() - extended.recorder.specs.keys()


def test_final_phase_alone_leaves_the_search_as_it_stands(build_bench: Callable[..., Any], tmp_path: Path) -> None:
    build_bench(tmp_path, until="search").run(epochs=4 + 4 + 4 + 1)
    bench = build_bench(tmp_path, extend=False)
    bench.run()
    assert [row.lineage for row in bench.search.finished()] == ["t000", "t001"]
    assert {name.partition("-")[0] for name, _ in bench.recorder.ended} == {"rerank", "final"}


def test_failed_planned_row_is_tried_again_by_the_next_session_and_not_by_its_own(
    build_bench: Callable[..., Any], tmp_path: Path
) -> None:
    failing = build_bench(tmp_path)
    failing.fails = {"baseline": "loss is nan", "final-see": "out of memory"}
    failing.run()
    ended = Counter(name for name, result in failing.recorder.ended if result.status == "failed")
    assert ended["baseline"] == 1
    assert sum(name.startswith("final-see") for name in ended) == 3
    assert {row.lineage for row in failing.final.finished() if row.result.status == "failed"} == ended.keys()
    mended = build_bench(tmp_path)
    mended.run()
    again = [name for name, _ in mended.recorder.ended]
    assert {"baseline"} | {name for name in ended if name.startswith("final-see")} <= set(again)
    assert not any(name.startswith("rerank-t") for name in again)
    assert all(row.value is not None for row in mended.final.finished())
    assert mended.final.withdrawn() == ()
    assert build_bench(tmp_path).desk.take("nothing") is None


def test_failed_row_that_is_no_longer_wanted_is_no_failure_of_the_study(
    build_bench: Callable[..., Any], tmp_path: Path, study_text: str
) -> None:
    failing = build_bench(tmp_path)
    failing.fails = {"rerank-t": "loss is nan"}
    failing.run()
    again = build_bench(tmp_path, study_text.replace("rerank_folds: 2", "rerank_folds: 3"))
    again.run()
    assert [row.lineage for row in again.final.finished() if row.result.status == "failed"] == []
