"""The ledger: each piece of work finishes once, whatever is killed in between."""

from __future__ import annotations

import time
from pathlib import Path

import optuna
import pytest

from see_tune.results import EpochResult, TrialResult
from see_tune.search.ledger import Ledger, open_final_ledger, open_search_ledger
from see_tune.spec.models import PrunerSpec, SamplerSpec
from see_tune.spec.space import Choice, FloatRange, IntRange, Parameter, Space

SPACE = Space((Parameter("see.n_aug", IntRange(1, 64)), Parameter("see.lambda", FloatRange(0.02, 2.0, log=True))), {})


def open_ledger(folder: Path, space: Space = SPACE, sampler: str = "tpe", pruner: str = "asha", grace: int = 2) -> Ledger:
    return open_search_ledger(
        f"sqlite:///{folder}/optuna.db",
        "study",
        space,
        sampler=SamplerSpec(name=sampler),
        pruner=PrunerSpec(name=pruner),
        grace_epochs=grace,
    )


def complete(value: float, epochs: int = 3) -> TrialResult:
    history = tuple(EpochResult(epoch, {"val/recall_at_1": value}, time.time(), 0.5) for epoch in range(1, epochs + 1))
    return TrialResult("complete", history, epochs, value)


def test_lineages_are_numbered_in_the_order_of_asking(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    assert [ledger.ask().lineage for _ in range(3)] == ["t000", "t001", "t002"]


def test_enqueued_point_is_tried_first(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.enqueue({"see.n_aug": 8, "see.lambda": 0.2})
    assert ledger.ask().values == {"see.n_aug": 8, "see.lambda": 0.2}


def test_enqueued_point_is_not_enqueued_again_by_the_next_session(tmp_path: Path) -> None:
    for _ in range(2):
        ledger = open_ledger(tmp_path)
        ledger.enqueue({"see.n_aug": 8, "see.lambda": 0.2})
    ledger.ask()
    assert ledger.ask().values != {"see.n_aug": 8, "see.lambda": 0.2}


def test_finished_row_survives_a_new_session_with_value_and_duration(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    row = ledger.ask()
    ledger.tell(row.lineage, complete(0.7))
    (finished,) = open_ledger(tmp_path).finished()
    assert (finished.lineage, finished.values, finished.value, finished.duration_s) == ("t000", row.values, 0.7, 1.5)


def test_time_of_rows_that_are_out_or_were_cut_counts_once(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.tell(ledger.ask().lineage, complete(0.7))
    lineage = ledger.ask().lineage
    for epoch in (1, 2):
        ledger.count_epoch(lineage, epoch, 0.5)
    assert ledger.trained_s == 1.5 + 1.0
    ledger.tell(lineage, TrialResult("interrupted"))
    assert ledger.trained_s == open_ledger(tmp_path).trained_s == 2.5

    again = open_ledger(tmp_path)
    again.ask()
    for epoch in (1, 2, 3):  # the first two from its checkpoint
        again.count_epoch(lineage, epoch, 0.5)
    assert again.trained_s == 3.0
    again.tell(lineage, complete(0.8))
    assert again.trained_s == open_ledger(tmp_path).trained_s == 3.0


@pytest.mark.parametrize(("status", "state"), [("pruned", "PRUNED"), ("failed", "FAIL")])
def test_storage_names_how_a_row_ended(tmp_path: Path, status: str, state: str) -> None:
    ledger = open_ledger(tmp_path)
    ledger.tell(ledger.ask().lineage, TrialResult(status, cause="loss is nan at epoch 3"))
    (trial,) = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path}/optuna.db").trials
    assert trial.state.name == state
    assert ledger.finished()[0].result.cause == "loss is nan at epoch 3"


def test_cut_row_goes_on_under_its_own_lineage_and_values(tmp_path: Path) -> None:
    cut = open_ledger(tmp_path).ask()
    ledger = open_ledger(tmp_path)
    assert ledger.requeue_interrupted() == ("t000",)
    again = ledger.ask()
    assert (again.lineage, again.values) == (cut.lineage, cut.values)


def test_cut_row_is_enqueued_once_although_the_requeue_is_killed_half_way(tmp_path: Path) -> None:
    open_ledger(tmp_path).ask()
    study = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path}/optuna.db")
    study.enqueue_trial(study.trials[0].params, user_attrs={"lineage": "t000"})  # killed before the cut row was told FAIL
    ledger = open_ledger(tmp_path)
    ledger.requeue_interrupted()
    assert [ledger.ask().lineage for _ in range(2)] == ["t000", "t001"]


def test_row_cut_between_asking_and_naming_loses_no_point(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.enqueue({"see.n_aug": 8, "see.lambda": 0.2})
    optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path}/optuna.db").ask()  # killed here
    resumed = open_ledger(tmp_path)
    resumed.requeue_interrupted()
    row = resumed.ask()
    assert (row.lineage, row.values) == ("t000", {"see.n_aug": 8, "see.lambda": 0.2})


def test_wall_clock_adds_up_over_sessions_without_the_pauses_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("see_tune.search.ledger.time.monotonic", lambda: now[0])
    for _ in range(2):
        ledger = open_ledger(tmp_path)
        row = ledger.ask()
        now[0] += 50.0
        ledger.tell(row.lineage, complete(0.7))
        now[0] += 3600.0
    assert open_ledger(tmp_path).spent_s == 100.0


def test_row_that_ended_is_parsed_once_however_often_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the driver's time for an epoch does not grow with the number of trials behind it."""
    ledger, parsed = open_ledger(tmp_path), []
    from_json = TrialResult.from_json
    monkeypatch.setattr(TrialResult, "from_json", lambda text: parsed.append(text) or from_json(text))
    for _ in range(3):
        ledger.tell(ledger.ask().lineage, complete(0.7))
        ledger.finished()
    assert len(parsed) == 3


def test_superseded_row_counts_for_nothing(tmp_path: Path) -> None:
    open_ledger(tmp_path).ask()
    ledger = open_ledger(tmp_path)
    ledger.requeue_interrupted()
    assert ledger.started() == 0
    assert ledger.finished() == ()


def test_no_row_stays_running_after_an_interrupted_result(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.tell(ledger.ask().lineage, TrialResult("interrupted"))
    assert ledger.waiting_lineages() == ("t000",)
    states = [
        trial.state.name for trial in optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path}/optuna.db").trials
    ]
    assert states == ["FAIL", "WAITING"]


def test_pruner_stops_the_worse_row_at_the_first_rung(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path, grace=2)
    good, bad = ledger.ask().lineage, ledger.ask().lineage
    verdicts = [ledger.report(good, 1, 0.8), ledger.report(good, 2, 0.8), ledger.report(bad, 1, 0.1), ledger.report(bad, 2, 0.1)]
    assert verdicts == [False, False, False, True]


def test_rungs_survive_a_new_session(tmp_path: Path) -> None:
    first = open_ledger(tmp_path, grace=1)
    row = first.ask()
    first.report(row.lineage, 1, 0.8)
    first.tell(row.lineage, complete(0.8))
    second = open_ledger(tmp_path, grace=1)
    assert second.report(second.ask().lineage, 1, 0.1)


def test_epoch_that_was_judged_before_the_cut_writes_its_rung_and_is_not_judged_again(tmp_path: Path) -> None:
    first = open_ledger(tmp_path, grace=1)
    cut, good = first.ask().lineage, first.ask().lineage
    assert not first.report(cut, 1, 0.1)  # alone on its rung
    first.report(good, 1, 0.8)
    first.tell(good, complete(0.8))
    resumed = open_ledger(tmp_path, grace=1)
    resumed.requeue_interrupted()
    assert resumed.ask().lineage == cut
    assert not resumed.report(cut, 1, 0.1)
    assert resumed.report(resumed.ask().lineage, 1, 0.05)


def test_epoch_after_the_cut_is_judged_although_no_checkpoint_was_written(tmp_path: Path) -> None:
    first = open_ledger(tmp_path, grace=1)
    cut, good = first.ask().lineage, first.ask().lineage
    first.report(cut, 1, 0.1)
    for epoch in (1, 2, 3):
        first.report(good, epoch, 0.8)
    first.tell(good, complete(0.8))
    resumed = open_ledger(tmp_path, grace=1)
    resumed.requeue_interrupted()
    resumed.ask()
    assert [resumed.report(cut, epoch, 0.1) for epoch in (1, 2, 3)] == [False, False, True]


def test_superseded_row_does_not_compete_with_its_own_successor(tmp_path: Path) -> None:
    first = open_ledger(tmp_path, grace=1)
    first.report(first.ask().lineage, 1, 0.8)
    resumed = open_ledger(tmp_path, grace=1)
    resumed.requeue_interrupted()
    # Alone on its rung, a row is always promoted; with the superseded 0.8 beside it, 0.7 would be stopped.
    assert not resumed.report(resumed.ask().lineage, 1, 0.7)


def test_second_session_does_not_suggest_the_points_of_the_first(tmp_path: Path) -> None:
    first = open_ledger(tmp_path).ask()
    assert open_ledger(tmp_path).ask().values != first.values


def test_parameter_is_asked_only_where_its_condition_holds(tmp_path: Path) -> None:
    space = Space(
        (
            Parameter("loss.name", Choice(("arcface", "cosface"))),
            Parameter("loss.arcface.margin", FloatRange(10, 30), (("loss.name", ("arcface",)),)),
        ),
        {},
    )
    ledger = open_ledger(tmp_path, space, sampler="random")
    rows = [ledger.ask().values for _ in range(12)]
    assert {row["loss.name"] for row in rows} == {"arcface", "cosface"}
    assert all(("loss.arcface.margin" in row) == (row["loss.name"] == "arcface") for row in rows)


def test_exact_duplicate_in_a_discrete_space_is_not_handed_out_and_an_exhausted_space_ends(tmp_path: Path) -> None:
    space = Space((Parameter("see.gradient", Choice(("proxies", "all"))),), {})
    ledger = open_ledger(tmp_path, space, sampler="random")
    seen = []
    while row := ledger.ask():
        seen.append(row.values["see.gradient"])
        ledger.tell(row.lineage, complete(0.5))
    assert sorted(seen) == ["all", "proxies"]
    assert len(ledger.finished()) == 2
    assert ledger.exhausted


def test_twenty_points_in_a_row_that_were_tried_end_the_search_until_another_sampler_suggests(tmp_path: Path) -> None:
    space = Space((Parameter("a", Choice((1, 2))), Parameter("b", Choice((1, 2)))), {})
    ledger = open_ledger(tmp_path, space, sampler="random")
    ledger.tell(ledger.ask().lineage, complete(0.5))
    suggested = dict(ledger.finished()[0].values)
    ledger._suggest = lambda trial, space: [trial.suggest_categorical(n, (1, 2)) for n in suggested] and suggested
    trial_attrs = len(ledger._study.trials)
    assert ledger.ask() is None
    assert len(ledger._study.trials) == trial_attrs + 20
    assert open_ledger(tmp_path, space, sampler="random").ask() is None
    other = open_ledger(tmp_path, space, sampler="grid")
    assert not other.exhausted
    assert other.ask() is not None


def test_point_that_is_out_or_has_failed_is_not_handed_out_again(tmp_path: Path) -> None:
    space = Space((Parameter("see.gradient", Choice(("proxies", "all"))),), {})
    ledger = open_ledger(tmp_path, space, sampler="random")
    out, failed = ledger.ask(), ledger.ask()
    ledger.tell(failed.lineage, TrialResult("failed", cause="loss is nan"))
    assert out.values != failed.values
    assert ledger.ask() is None


def test_dropped_duplicates_leave_no_gap_in_the_lineages(tmp_path: Path) -> None:
    space = Space((Parameter("see.n_aug", IntRange(1, 4)),), {})
    ledger = open_ledger(tmp_path, space, sampler="random")
    while row := ledger.ask():
        ledger.tell(row.lineage, complete(0.5))
    assert [row.lineage for row in ledger.finished()] == ["t000", "t001", "t002", "t003"]
    assert len(ledger._study.trials) > 4


def test_cut_row_of_an_exhausted_space_still_goes_on(tmp_path: Path) -> None:
    space = Space((Parameter("see.n_aug", IntRange(1, 2)),), {})
    ledger = open_ledger(tmp_path, space, sampler="grid")
    cut = ledger.ask()
    ledger.tell(ledger.ask().lineage, complete(0.5))
    assert ledger.ask() is None
    ledger.tell(cut.lineage, TrialResult("interrupted"))
    assert ledger.ask().lineage == cut.lineage
    assert ledger.ask() is None


def test_grid_goes_on_where_the_session_before_ended(tmp_path: Path) -> None:
    space = Space((Parameter("see.n_aug", IntRange(1, 3)),), {})
    first = open_ledger(tmp_path, space, sampler="grid")
    first.enqueue({"see.n_aug": 2})
    assert first.ask().values == {"see.n_aug": 2}
    assert first.ask().values == {"see.n_aug": 1}
    second = open_ledger(tmp_path, space, sampler="grid")
    second.requeue_interrupted()
    assert [second.ask().values["see.n_aug"] for _ in range(3)] == [2, 1, 3]
    assert second.ask() is None


def test_grid_hands_out_each_point_of_the_product_once(tmp_path: Path) -> None:
    space = Space((Parameter("see.n_aug", IntRange(1, 3)), Parameter("see.gradient", Choice(("proxies", "all")))), {})
    ledger = open_ledger(tmp_path, space, sampler="grid")
    points = []
    while row := ledger.ask():
        points.append(tuple(row.values.values()))
        ledger.tell(row.lineage, complete(0.5))
    assert sorted(points) == [(1, "all"), (1, "proxies"), (2, "all"), (2, "proxies"), (3, "all"), (3, "proxies")]


@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc", "gp", "cmaes"])
def test_every_sampler_stays_in_range_over_trials(tmp_path: Path, sampler: str) -> None:
    ledger = open_ledger(tmp_path, sampler=sampler, pruner="none")
    for _ in range(4):
        row = ledger.ask()
        assert all(parameter.domain.holds(row.values[parameter.name]) for parameter in SPACE.parameters)
        ledger.tell(row.lineage, complete(float(row.values["see.lambda"])))


def test_planned_row_is_planned_once_and_hands_out_its_plan(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/optuna.db"
    ledger = open_final_ledger(storage, "study")
    ledger.plan("final-see-s0", {"phase": "final", "seed": 0})
    ledger.plan("final-see-s0", {"phase": "final", "seed": 0})
    row = ledger.ask()
    assert (row.lineage, row.plan) == ("final-see-s0", {"phase": "final", "seed": 0})
    assert ledger.ask() is None
    ledger.tell(row.lineage, complete(0.9))
    reopened = open_final_ledger(storage, "study")
    reopened.plan("final-see-s0", {"phase": "final", "seed": 0})
    assert reopened.ask() is None


def test_what_failed_in_a_session_that_gave_up_is_handed_out_again_as_it_was(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    good, broken = ledger.ask(), ledger.ask()
    ledger.tell(good.lineage, complete(0.7))
    ledger.tell(broken.lineage, TrialResult("failed", cause="no such file"))
    ledger.give_up()
    again = open_ledger(tmp_path)
    assert again.retry_failed() == (broken.lineage,)
    assert again.started() == 1
    row = again.ask()
    assert (row.lineage, row.values) == (broken.lineage, broken.values)
    again.tell(row.lineage, complete(0.6))
    assert [(row.lineage, row.value) for row in again.finished()] == [(good.lineage, 0.7), (broken.lineage, 0.6)]
    assert open_ledger(tmp_path).retry_failed() == ()


def test_failure_among_rows_that_complete_is_an_outcome_and_stands(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.tell(ledger.ask().lineage, TrialResult("failed", cause="loss is nan at epoch 1"))
    again = open_ledger(tmp_path)
    assert again.retry_failed() == ()
    assert [row.result.status for row in again.finished()] == ["failed"]


def test_failed_row_is_enqueued_once_although_its_retry_is_killed_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_ledger(tmp_path)
    ledger.tell(ledger.ask().lineage, TrialResult("failed", cause="no such file"))
    ledger.give_up()
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "_take_back", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            open_ledger(tmp_path).retry_failed()
    again = open_ledger(tmp_path)
    again.retry_failed()
    assert again.waiting_lineages() == ("t000",)
    assert again.finished() == ()


def test_first_point_is_tried_although_another_study_knows_it(tmp_path: Path) -> None:
    """A known point informs the sampler, and is no row: it could not be chosen."""
    (tmp_path / "earlier").mkdir()
    earlier = open_ledger(tmp_path / "earlier")
    earlier.enqueue({"see.n_aug": 8, "see.lambda": 0.2})
    earlier.tell(earlier.ask().lineage, complete(0.7))
    (row,) = earlier.finished()
    ledger = open_ledger(tmp_path)
    ledger.learn(row, row.values, {1: 0.7}, origin="earlier t000")
    ledger.enqueue({"see.n_aug": 8, "see.lambda": 0.2})
    assert ledger.ask().values == {"see.n_aug": 8, "see.lambda": 0.2}
