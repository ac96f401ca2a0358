"""The honest protocol: what runs after what, and what may be seen when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest


def test_phases_follow_one_another_and_the_baseline_runs_first(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.run()
    assert bench.recorder.phases == ["search", "re-rank", "final"]
    assert bench.recorder.ended[0][0] == "baseline"


def test_trial_zero_is_the_files_own_values(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.run()
    spec = bench.recorder.specs["t000"]
    assert (spec.see.n_aug, spec.see.lambda_) == (8, 0.2)


def test_no_row_before_the_final_phase_is_measured_on_test_classes(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.run()
    kinds = {lineage: spec.split.kind for lineage, spec in bench.recorder.specs.items()}
    assert {kind for lineage, kind in kinds.items() if not lineage.startswith("final")} == {"fraction", "fold"}
    assert {kind for lineage, kind in kinds.items() if lineage.startswith("final")} == {"test"}


def test_budget_counts_searched_rows_alone(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.run()
    lineages = Counter(lineage.partition("-")[0].rstrip("0123456789") for lineage, _ in bench.recorder.ended)
    assert lineages == {"t": 6, "baseline": 1, "rerank": 3 * 2, "final": 2 * 3}


def test_pairs_share_their_seeds_and_final_seeds_are_not_those_of_the_search(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.run()
    finals = {lineage: spec for lineage, spec in bench.recorder.specs.items() if lineage.startswith("final")}
    on = sorted(spec.seed for spec in finals.values() if spec.see.enabled)
    off = sorted(spec.seed for spec in finals.values() if not spec.see.enabled)
    assert on == off == [1000, 1001, 1002]


def test_final_runs_stop_at_their_own_best_epoch_of_the_same_horizon(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.run()
    see, off = bench.protocol.arms()
    specs = [spec for lineage, spec in bench.recorder.specs.items() if lineage.startswith("final")]
    assert {(spec.stop_epoch, spec.train.epochs) for spec in specs} == {(see.epoch, 4), (off.epoch, 4)}


def test_winner_is_the_best_by_the_mean_over_folds(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.run()
    winner = bench.protocol.winner()
    assert winner.reranked
    assert winner.value == max(candidate.value for candidate in bench.protocol.candidates())
    assert len(bench.protocol.candidates()) == 2


def test_search_alone_ends_before_the_re_ranking(open_bench: Callable[..., Any]) -> None:
    bench = open_bench(until="search")
    bench.run()
    assert bench.recorder.phases == ["search"]


def test_extended_study_trains_only_what_is_new(open_bench: Callable[..., Any], study_text: str) -> None:
    open_bench().run()
    extended = open_bench(study_text.replace("trials: 6", "trials: 8"))
    extended.run()
    assert [lineage for lineage, _ in extended.recorder.ended if lineage.startswith("t")] == ["t006", "t007"]


def test_finished_study_hands_out_nothing(open_bench: Callable[..., Any]) -> None:
    open_bench().run()
    again = open_bench()
    again.run()
    assert again.recorder.ended == []


def test_winner_with_other_values_than_see_gets_a_baseline_of_its_own(open_bench: Callable[..., Any], study_text: str) -> None:
    text = study_text.replace("search:", "search:\n  train.optimizer.lr: {float: [1.0e-5, 1.0e-2], log: true}")
    bench = open_bench(text)
    bench.run()
    winner = bench.protocol.winner()
    partner = bench.recorder.specs[f"baseline-{winner.lineage}"]
    assert not partner.see.enabled
    assert partner.train.optimizer.lr == winner.values["train.optimizer.lr"]
    assert bench.protocol.arms()[1].values == {"train.optimizer.lr": winner.values["train.optimizer.lr"]}


@pytest.mark.parametrize("cut_after", [0, 1, 3, 7, 12, 20, 33, 41, 50, 58])
def test_study_cut_anywhere_ends_with_each_lineage_once(open_bench: Callable[..., Any], cut_after: int) -> None:
    open_bench().run(epochs=cut_after)
    resumed = open_bench()
    resumed.run()
    searched = [row.lineage for row in resumed.search.finished()]
    planned = [row.lineage for row in resumed.final.finished()]
    assert searched == [f"t{number:03d}" for number in range(6)]
    assert len(planned) == len(set(planned)) == 1 + 3 * 2 + 2 * 3
    assert resumed.search.waiting_lineages() == ()
