"""The answer as text: one decimal, a baseline beside every best, and no gain claimed that was not shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from see_tune.cli.show import answer_lines, duration, result_lines
from see_tune.report.numbers import describe_values
from see_tune.results import Arm, Interval, StudyResult

TEST = {"test/recall_at_1": (0.849, 0.851), "test/recall_at_2": (0.91, 0.92)}
SEE = Arm(
    "t017",
    {"see.n_aug": 12, "see.lambda": 0.31},
    {"val/recall_at_1": 0.934},
    41,
    True,
    (0, 1),
    TEST,
    {"test/recall_at_1": Interval(0.85, 0.846, 0.854), "test/recall_at_2": Interval(0.915, 0.9, 0.93)},
)
RESULT = StudyResult(
    "cars",
    "cars196",
    "honest",
    "done",
    60,
    31,
    27,
    2,
    {"t004": "out of memory"},
    SEE,
    replace(SEE, lineage="baseline", values={}, see_enabled=False),
    Interval(0.004, -0.001, 0.009),
    "models:/see-tune.cars196@champion",
    "first",
    39840.0,
    38.2,
    "/runs/studies/cars",
    "sqlite:///m",
    0,
    (),
    {"ui": "see-tune ui --home /runs", "continue": "see-tune run x"},
)


def test_gain_is_judged_by_the_interval_over_seeds_and_by_the_one_over_classes() -> None:
    result = replace(RESULT, gain=Interval(0.004, 0.001, 0.007), gain_over_classes=Interval(0.004, -0.002, 0.01))
    place = next(number for number, line in enumerate(result_lines(result)) if line.startswith("gain"))
    assert result_lines(result)[place : place + 2] == [
        "gain             +0.4 [+0.1, +0.7]      over training seeds: gain",
        "                 +0.4 [-0.2, +1.0]      over test classes: no gain shown",
    ]


def test_see_that_has_expanded_nothing_is_said_to_be_no_comparison() -> None:
    idle = replace(RESULT, see=replace(SEE, see_expands=False))
    said = "SEE              expands nothing by epoch 41, its best: trained as SEE off is"
    assert said in answer_lines(idle)
    assert said not in answer_lines(RESULT)
    assert len(said) <= 80


def test_an_answer_without_places_names_none() -> None:
    told = "\n".join(answer_lines(RESULT))
    assert "SEE" in told
    assert not any(place in told for place in (RESULT.folder, RESULT.tracking, *RESULT.commands.values()))


def test_gain_of_queries_that_were_not_kept_has_the_interval_over_seeds_alone() -> None:
    assert not any("classes:" in line for line in result_lines(RESULT))


def test_summary_holds_best_parameters_validation_test_and_where_things_lie() -> None:
    text = "\n".join(result_lines(RESULT))
    for part in ("see.n_aug: 12", "see.lambda: 0.31", "SEE 93.4   SEE off 93.4", "85.0 +-0.4", "no gain shown"):
        assert part in text
    for part in (
        "t004 failed: out of memory",
        "models:/see-tune.cars196@champion",
        "/runs/studies/cars",
        "see-tune ui --home /runs",
    ):
        assert part in text


def test_study_without_a_final_phase_says_why_there_is_no_champion() -> None:
    text = "\n".join(result_lines(replace(RESULT, champion=None, champion_note="no final phase has run", gain=None)))
    assert "none: no final phase has run" in text


@pytest.mark.parametrize(("seconds", "text"), [(41.6, "42s"), (192, "3m12"), (39840, "11h04"), (59.7, "1m00")])
def test_duration_is_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_values_are_named_shortly() -> None:
    values = {"see.n_aug": 12, "see.lambda": 0.31, "see.pace.end_share": 0.62, "see.gradient": "all", "train.batch_size": 90}
    assert describe_values(values) == "n12 l.31 end.62 all batch_size 90"


def test_see_off_that_did_better_on_validation_is_said_to_be_what_was_registered() -> None:
    assert RESULT.off is not None
    better = replace(RESULT, off=replace(RESULT.off, validation={"val/recall_at_1": 0.94}))
    said = "                 SEE off did better on validation, and is what was registered"
    assert said in answer_lines(better)
    assert said not in answer_lines(RESULT)
    assert not any("did better" in line for line in answer_lines(replace(better, protocol="paper")))
    assert len(said) <= 80


def test_columns_stand_in_line_also_where_an_interval_is_cut() -> None:
    assert RESULT.off is not None
    wide = {**SEE.test_mean, "test/recall_at_1": Interval(0.85, 0.6, 1.1)}
    lines = answer_lines(replace(RESULT, off=replace(RESULT.off, test_mean=wide)))
    rows = [line for line in lines if line.startswith(("test, ", "SEE"))]
    assert "85.0 [60.0, 100.0]" in rows[-1]
    assert len({line.index(cell) for line, cell in zip(rows, ("R@2", "91.5", "91.5"), strict=True)}) == 1


def test_numbers_chosen_on_test_classes_are_called_so() -> None:
    text = "\n".join(result_lines(replace(RESULT, protocol="paper")))
    assert "validation" not in text
    assert "chosen on these test classes" in text


def test_gain_of_a_winner_with_see_off_is_none_of_see() -> None:
    text = "\n".join(result_lines(replace(RESULT, see=replace(SEE, see_enabled=False), gain=None)))
    assert "gain             none of SEE: the configuration that was chosen has it off" in text


def test_study_without_see_does_not_claim_it() -> None:
    text = "\n".join(result_lines(replace(RESULT, see=replace(SEE, see_enabled=False), off=None, gain=None)))
    assert "SEE off 93.4" in text
    assert "SEE 93.4" not in text
