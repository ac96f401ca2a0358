"""The desk: who gets which row, and how each one ends."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
from ray.tune.search import Searcher

from see_tune.errors import StorageAwayError
from see_tune.results import EpochResult, TrialResult
from see_tune.search.searcher import LedgerSearcher, LedgerStopper


def report(epoch: int, value: float, metric: str = "val/recall_at_1") -> dict[str, Any]:
    result = EpochResult(epoch, {metric: value}, time.time(), 1.0)
    return {"epoch_result": result.to_json(), "where": "here:cpu"}


def test_no_more_rows_are_out_than_there_are_slots(open_bench: Callable[..., Any]) -> None:
    desk = open_bench().desk
    assert desk.take("a") is not None
    assert desk.take("b") is None
    assert not desk.finished


def test_repeated_last_result_is_taken_once(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk.take("a")
    for _ in range(2):
        bench.desk.receive("a", report(1, 0.5))
    assert len(bench.desk.out["a"].history) == 1


def test_row_whose_worker_is_lost_for_good_fails_with_its_history(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk.take("a")
    bench.desk.receive("a", report(1, 0.5))
    bench.desk.close("a", lost=True)
    (row,) = bench.final.finished()
    assert row.result.status == "failed"
    assert "worker was lost" in row.result.cause
    assert row.duration_s == 1.0


def test_row_whose_worker_is_lost_is_handed_out_again_as_often_as_it_may(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk._retries = 2
    for number in range(3):
        assert bench.desk.take(f"ray-{number}")["lineage"] == "baseline"
        bench.desk.receive(f"ray-{number}", report(1, 0.5))
        bench.desk.close(f"ray-{number}", lost=True)
    assert [result.status for _, result in bench.recorder.ended] == ["interrupted", "interrupted", "failed"]
    assert bench.desk.take("another")["lineage"] == "t000"


def test_failed_outcome_of_the_trainer_keeps_its_cause(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk.take("a")
    bench.desk.receive("a", {"outcome": TrialResult("failed", cause="loss is nan at epoch 1").to_json()})
    bench.desk.close("a", lost=False)
    assert bench.final.finished()[0].result.cause == "loss is nan at epoch 1"


def test_stopping_desk_stops_what_runs_hands_out_nothing_and_puts_rows_back(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk.take("a")
    bench.desk.stopping = True
    assert bench.desk.receive("a", report(1, 0.5))
    assert bench.desk.take("b") is None
    bench.desk.close_all()
    assert bench.final.waiting_lineages() == ("baseline",)


def test_pruned_row_is_told_pruned_with_no_value(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.run()
    pruned = [row for row in bench.search.finished() if row.result.status == "pruned"]
    assert pruned
    assert all(row.value is None and row.result.epochs[-1].epoch == 2 for row in pruned)


def test_row_that_is_trained_to_its_end_is_complete_where_a_rung_equals_the_horizon(
    open_bench: Callable[..., Any], study_text: str
) -> None:
    bench = open_bench(study_text.replace("grace_epochs: 2", "grace_epochs: 4"))
    bench.run()
    assert [row.result.status for row in bench.search.finished()] == ["complete"] * 6


def test_searcher_says_finished_only_when_the_last_phase_is_done(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    searcher = LedgerSearcher(bench.desk)
    assert isinstance(searcher.suggest("a"), dict)
    assert searcher.suggest("b") is None
    bench.desk.close("a", lost=True)
    bench.run()
    assert searcher.suggest("c") == Searcher.FINISHED


def test_error_while_planning_ends_the_run_and_is_kept_for_the_runner(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk._phases = iter(())
    bench.protocol.phases().close()

    def broken() -> Any:
        raise ValueError("no such phase")
        yield

    bench.desk._phases = broken()
    assert LedgerSearcher(bench.desk).suggest("a") == Searcher.FINISHED
    assert isinstance(bench.desk.error, ValueError)


def test_study_that_is_stopped_before_its_first_row_ends(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk.stopping = True
    assert LedgerSearcher(bench.desk).suggest("a") == Searcher.FINISHED


@pytest.mark.parametrize("kind", [LedgerSearcher, LedgerStopper])
def test_what_tune_pickles_leaves_the_desk_behind(open_bench: Callable[..., Any], kind: type) -> None:
    assert "_desk" not in pickle.loads(pickle.dumps(kind(open_bench().desk))).__dict__


def test_trial_of_several_trainings_is_judged_by_the_first_and_counts_with_their_mean(
    open_bench: Callable[..., Any], study_text: str
) -> None:
    text = study_text.replace("validation: {rerank_top: 2, rerank_folds: 2}", "validation: {folds: 2}")
    bench = open_bench(text, until="search")
    bench.desk.take("baseline")
    bench.desk.close("baseline", lost=True)
    bench.desk.take("a")
    first = {1: 0.5, 2: 0.7, 3: 0.6, 4: 0.6}
    for epoch, value in first.items():
        assert not bench.desk.receive("a", report(epoch, value))
    for epoch in range(5, 9):
        assert not bench.desk.receive("a", report(epoch, 0.5, "train/loss"))
    mean = {1: 0.4, 2: 0.5, 3: 0.8, 4: 0.6}
    epochs = tuple(EpochResult(epoch, {"val/recall_at_1": value}, time.time(), 2.0) for epoch, value in mean.items())
    bench.desk.receive("a", {"outcome": TrialResult("complete", epochs, 3, 0.8).to_json()})
    bench.desk.close("a", lost=False)
    (row,) = bench.search.finished()
    assert (row.value, row.duration_s) == (0.8, 8.0)
    assert bench.search.history("t000") == mean
    assert bench.search._study.trials[0].intermediate_values == first
    assert (bench.protocol.winner().epoch, bench.protocol.winner().value) == (3, 0.8)
    assert [(phase.name) for phase in bench.protocol.phases()] == ["search"]


def lose(desk: Any, times: int, node: str) -> None:
    """Hand the first row out so many times, and lose its worker each time."""
    for number in range(times):
        desk.take(f"{node}{number}")
        desk.receive(f"{node}{number}", {"epoch": 0, "node": node})
        desk.close(f"{node}{number}", lost=True)


def test_node_that_left_is_not_held_against_its_rows(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk._has_left = {"gone"}.__contains__
    lose(bench.desk, 3, "gone")
    assert [result.status for _, result in bench.recorder.ended] == ["interrupted"] * 3
    lose(bench.desk, 1, "steady")
    assert [result.status for _, result in bench.recorder.ended][-1] == "failed"


def test_row_that_takes_node_after_node_with_it_fails(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk._has_left = {"gone"}.__contains__
    lose(bench.desk, 6, "gone")
    assert [result.status for _, result in bench.recorder.ended] == ["interrupted"] * 5 + ["failed"]


def test_worker_of_an_unknown_node_is_judged_as_any(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk._has_left = lambda node: True
    bench.desk.take("a")
    bench.desk.close("a", lost=True)
    assert [result.status for _, result in bench.recorder.ended] == ["failed"]


def test_slots_may_change_while_the_desk_is_open(open_bench: Callable[..., Any]) -> None:
    desk = open_bench().desk
    counts = iter([0, 1, 2, 2])
    searcher = LedgerSearcher(desk, lambda: next(counts))
    assert [searcher.suggest(name) is not None for name in "abcd"] == [False, True, True, False]


def test_storage_that_went_away_stops_the_desk_and_leaves_its_rows_to_the_next_start(
    open_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = open_bench()
    bench.desk.take("a")

    def away(*arguments: Any) -> bool:
        raise StorageAwayError("no route to host")

    monkeypatch.setattr(bench.final, "report", away)
    assert bench.desk.receive("a", report(1, 0.5))
    bench.desk.close_all()
    assert (bench.desk.stopping, bench.desk.finished, str(bench.desk.error)) == (True, True, "no route to host")
    assert bench.recorder.ended == []
    again = open_bench()
    assert again.desk.take("a")["lineage"] == "baseline"
