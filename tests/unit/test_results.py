"""Records cross every wall as JSON and come back equal."""

from __future__ import annotations

import pytest

from see_tune.results import Arm, EpochResult, Interval, Looks, StudyResult, TrialResult, best_epoch

EPOCHS = tuple(EpochResult(n, {"val/recall_at_1": value}, 1.7e9 + n, 0.5) for n, value in enumerate((0.5, 0.7, 0.7), start=1))
ARM = Arm(
    "t003",
    {"see.n_aug": 8},
    {"val/recall_at_1": 0.7},
    2,
    True,
    (0, 1),
    {"test/recall_at_1": (0.6, 0.7)},
    {"test/recall_at_1": Interval(0.65, 0.0, 1.0)},
)
STUDY = StudyResult(
    "s",
    "glyphs",
    "honest",
    "done",
    4,
    3,
    1,
    0,
    {"t001": "nan"},
    ARM,
    None,
    Interval(0.1, None, None),
    None,
    "none",
    1.0,
    0.1,
    "/home",
    "sqlite:///x",
    0,
    ("refused: metrics: too long",),
    {"ui": "see-tune ui"},
    gain_over_classes=Interval(0.1, -0.1, 0.3),
    test_looks=Looks(12, 2, 1),
)


@pytest.mark.parametrize(
    "record", [EPOCHS[0], TrialResult("failed", EPOCHS, 2, 0.7, "nan"), Interval(0.5, None, None), ARM, STUDY]
)
def test_json_round_trip_gives_an_equal_record(record: EpochResult | TrialResult | Interval | Arm | StudyResult) -> None:
    assert type(record).from_json(record.to_json()) == record


def test_non_finite_metric_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        EpochResult(1, {"train/loss": float("nan")}, 0.0, 0.0).to_json()


def test_best_epoch_is_the_first_of_equals() -> None:
    assert best_epoch(EPOCHS, "val/recall_at_1") == (2, 0.7)


def test_metric_that_was_never_measured_has_no_best_epoch() -> None:
    assert best_epoch(EPOCHS, "val/map_at_r") is None
