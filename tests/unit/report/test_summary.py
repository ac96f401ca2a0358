"""The gain over test classes comes from what each final run left of each query."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from see_tune.home import Home
from see_tune.report.record import read_record
from see_tune.report.statistics import mean_over_classes
from see_tune.report.summary import final_rows
from see_tune.training.checkpoint import RANKS_FILE, save_ranks

LABELS = np.repeat(np.arange(6), 5)


@pytest.fixture
def home(finished_home: Home, tmp_path: Path) -> Home:
    """The finished study, whose final runs left ranks: a hit in three of four queries, in nine of ten with SEE."""
    copy = Home(Path(shutil.copytree(finished_home.root, tmp_path / "home")))
    rng = np.random.default_rng(0)
    for side, rate in (("see", 0.9), ("off", 0.75)):
        for folder in final_folders(copy, side):
            save_ranks(folder, LABELS, np.where(rng.uniform(size=30) < rate, 1, 3))
    return copy


def final_folders(home: Home, side: str) -> list[Path]:
    record = read_record("small", home)
    arm = record.result.see if side == "see" else record.result.off
    assert arm is not None
    return [record.folder.trial(row.lineage) for row in final_rows(record.planned, side, arm).values()]  # type: ignore[arg-type]


def hits(folder: Path) -> NDArray[np.float64]:
    with np.load(folder / RANKS_FILE) as stored:
        return (stored["best_positive_rank"] == 1).astype(float)


def test_differences_are_taken_query_by_query_and_averaged_over_seeds(home: Home) -> None:
    differences = [hits(on) - hits(off) for on, off in zip(final_folders(home, "see"), final_folders(home, "off"), strict=True)]
    assert len(differences) == 3
    assert read_record("small", home).result.gain_over_classes == mean_over_classes(np.mean(differences, axis=0), LABELS)


def test_queries_without_a_positive_count_on_no_side(home: Home) -> None:
    before = read_record("small", home).result.gain_over_classes
    for folder in [*final_folders(home, "see"), *final_folders(home, "off")]:
        with np.load(folder / RANKS_FILE) as stored:
            save_ranks(folder, np.append(stored["labels"], 77), np.append(stored["best_positive_rank"], 0))
    assert read_record("small", home).result.gain_over_classes == before


def test_a_run_whose_ranks_are_gone_or_of_other_queries_leaves_no_interval(home: Home) -> None:
    folder = final_folders(home, "off")[1]
    save_ranks(folder, LABELS[::-1], np.ones(30, int))
    assert read_record("small", home).result.gain_over_classes is None
    (folder / RANKS_FILE).unlink()
    assert read_record("small", home).result.gain_over_classes is None
