"""The board: counts, the best beside SEE off, and the time left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from see_tune.results import TrialResult
from see_tune.search.board import Board, Plan
from see_tune.search.rows import Row


def watched(bench: Any) -> Board:
    spec = bench.loaded.spec
    board = Board(Plan(spec.budget.trials, spec.train.epochs, bench.protocol.planned_epochs(), "then"), slots=1)
    bench.desk._listeners.append(board)
    return board


def test_counts_and_best_stand_beside_the_baseline(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    board = watched(bench)
    bench.run()
    now = board.snapshot()
    best = max(row.value for row in bench.search.finished() if row.value is not None)
    assert (now.finished, now.total, now.failed, now.running) == (6, 6, 0, ())
    assert now.best.value == best
    assert now.off.lineage == "baseline"


def test_time_left_is_unknown_before_the_first_epoch_and_nothing_at_the_end(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    board = watched(bench)
    assert board.snapshot().left_s is None
    bench.run()
    # One second an epoch; arms that end before the horizon leave what was planned for them.
    assert 0 <= board.snapshot().left_s <= 2 * 3 * 4


def test_time_left_includes_the_final_phase(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    board = watched(bench)
    bench.run(epochs=1)
    # 6 trials x 4 epochs, re-rank 3 x 2 x 4, final 2 x 3 x 4, and 3 of the baseline's 4: a second each, one slot.
    assert board.snapshot().left_s == 24 + 24 + 24 + 3


def test_resumed_board_knows_what_was_finished(open_bench: Callable[..., Any]) -> None:
    open_bench().run()
    bench = open_bench()
    board = watched(bench)
    for row in [*bench.search.finished(), *bench.final.finished()]:
        board.recall(row)
    assert (board.snapshot().finished, board.snapshot().off.lineage) == (6, "baseline")


def test_time_of_a_cut_trial_is_not_lost_and_counts_once(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    board = watched(bench)
    bench.run(epochs=6)  # the baseline's four, and two of t000
    bench.desk.close_all()
    assert board.snapshot().device_s == 6

    resumed = open_bench()
    again = watched(resumed)
    for row in resumed.final.finished():
        again.recall(row)
    for cut in resumed.search.cut():
        again.recall_cut(cut)
    assert again.snapshot().device_s == 6
    resumed.run(epochs=3)
    assert again.snapshot().device_s == 7


def test_of_equal_values_the_first_trial_is_the_best_whichever_ended_first() -> None:
    board = Board(Plan(2, 1, 0, "then"), slots=2)
    for number in (1, 0):
        board._count(Row(number, f"t00{number}", {}, {}), TrialResult("complete", (), 1, 0.5))
    best = board.snapshot().best
    assert best is not None
    assert best.lineage == "t000"
