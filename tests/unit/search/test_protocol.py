"""The honest protocol: what runs after what, and what may be seen when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from see_tune.results import EpochResult
from see_tune.search.protocol import PlannedEpochs, plan_epochs
from see_tune.spec.load import parse_study


def with_lr(text: str) -> str:
    return text.replace("search:", "search:\n  train.optimizer.lr: {float: [1.0e-5, 1.0e-2], log: true}")


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


def test_device_hours_count_trials_that_are_out_or_were_cut(
    build_bench: Callable[..., Any], study_text: str, tmp_path: Path
) -> None:
    text = study_text.replace("budget: {trials: 6}", f"budget: {{trials: 6, device_hours: {3 / 3600}}}")
    cut = build_bench(tmp_path, text, until="search")
    cut.desk.slots = 2
    taken = {cut.desk.take(name)["lineage"]: name for name in ("a", "b")}
    assert set(taken) == {"baseline", "t000"}
    for epoch in (1, 2, 3):
        assert not cut.protocol.search_ended()
        result = EpochResult(epoch, {"val/recall_at_1": 0.5}, 0.0, 1.0)
        cut.desk.receive(taken["t000"], {"epoch_result": result.to_json()})
    assert cut.protocol.search_ended() == "device_hours"
    cut.desk.stopping = True
    cut.desk.close_all()

    bench = build_bench(tmp_path, text, until="search")
    assert bench.protocol.search_ended() == "device_hours"
    bench.run()
    assert [row.lineage for row in bench.search.finished()] == ["t000"]  # what was begun is ended, and no more is begun


def test_hours_are_those_of_all_sessions_and_all_search_spaces(open_bench: Callable[..., Any], study_text: str) -> None:
    text = study_text.replace("trials: 6", "trials: 6, hours: 1")
    first = open_bench(text, until="search")
    first.search._spent_before = 3590.0
    first.run(epochs=4 + 4)
    first.search._study.set_user_attr("spent_s", 3601.0)
    again = open_bench(text, until="search")
    again.run()
    assert again.recorder.ended == []
    wider = open_bench(text.replace("[0.0, 2.0]", "[0.0, 3.0]"), until="search")
    wider.run()
    assert wider.recorder.ended == []


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
    text = with_lr(study_text).replace("seeds: 3", "seeds: 3, baseline: paired")
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


def test_partner_of_a_re_ranked_winner_is_re_ranked_on_the_same_folds(open_bench: Callable[..., Any], study_text: str) -> None:
    text = with_lr(study_text).replace("seeds: 3", "seeds: 3, baseline: paired")
    bench = open_bench(text)
    bench.run()
    see, off = bench.protocol.arms()
    assert see.reranked
    assert off.reranked


def test_another_number_of_folds_is_another_re_ranking(open_bench: Callable[..., Any], study_text: str) -> None:
    open_bench().run()
    again = open_bench(study_text.replace("rerank_folds: 2", "rerank_folds: 3"))
    again.run()
    rerun = [lineage for lineage, _ in again.recorder.ended if lineage.startswith("rerank")]
    assert len(rerun) == 3 * 3
    assert again.protocol.winner().reranked


def test_arm_of_a_study_without_see_is_called_so(open_bench: Callable[..., Any], study_text: str) -> None:
    search = (
        study_text.partition("search:")[0] + "see: {enabled: false}\nsearch:\n  train.optimizer.lr: {float: [1.0e-5, 1.0e-2]}\n"
    )
    bench = open_bench(search + "budget: {trials: 2}\nvalidation: {rerank_top: 0}\nfinal: {seeds: 1}\n")
    bench.run()
    see, off = bench.protocol.arms()
    assert not see.see_enabled
    assert off is None


@pytest.mark.parametrize(("start_share", "expands"), [(0.0, False), (0.4, True)])
def test_arm_whose_best_epoch_comes_before_any_expansion_says_so(
    open_bench: Callable[..., Any], study_text: str, start_share: float, expands: bool
) -> None:
    """At a pace from 0 the first epoch expands nothing."""
    short = study_text.replace("epochs: 4", "epochs: 1").replace("grace_epochs: 2, force: true", "name: none")
    bench = open_bench(f"{short}see: {{pace: {{start_share: {start_share}}}}}\n")
    bench.run()
    see, off = bench.protocol.arms()
    assert (see.epoch, see.see_enabled, see.see_expands) == (1, True, expands)
    assert not off.see_expands


GRID = """
study: small
dataset: {name: glyphs, classes: 40}
train: {epochs: 4}
see: {n_aug: 3, gradient: all}
search: {see.n_aug: {int: [1, 3]}, see.gradient: {choice: [proxies, all]}}
start_with: [{see.n_aug: 2, see.gradient: proxies}]
sampler: {name: grid}
pruner: {name: none}
budget: {trials: 60}
final: none
"""


def test_grid_begins_with_the_files_own_values_and_the_points_to_start_with(open_bench: Callable[..., Any]) -> None:
    bench = open_bench(GRID)
    bench.run()
    points = [tuple(row.values.values()) for row in bench.search.finished()]
    assert points == [(3, "all"), (2, "proxies"), (1, "proxies"), (1, "all"), (2, "all"), (3, "proxies")]
    assert bench.protocol.search_ended() == "exhausted"
    assert bench.protocol.planned_trials() == 6


def test_baseline_is_measured_as_the_trials_are_and_a_final_run_is_one_training(
    open_bench: Callable[..., Any], study_text: str
) -> None:
    bench = open_bench(study_text.replace("validation: {rerank_top: 2, rerank_folds: 2}", "validation: {folds: 2}\nrepeat: 2"))
    bench.run()
    assert bench.recorder.phases == ["search", "final"]
    members = {lineage.partition("-")[0]: len(spec.members) for lineage, spec in bench.recorder.specs.items()}
    assert members == {"baseline": 4, "final": 0, **{f"t{number:03d}": 4 for number in range(6)}}


def test_search_outside_see_gives_see_off_a_search_of_its_own(open_bench: Callable[..., Any], study_text: str) -> None:
    bench = open_bench(with_lr(study_text))
    bench.run()
    off = {lineage: spec for lineage, spec in bench.recorder.specs.items() if lineage.startswith("o")}
    assert sorted(off) == [f"o{number:03d}" for number in range(6)]
    assert not any(spec.see.enabled for spec in off.values())
    assert len({spec.train.optimizer.lr for spec in off.values()}) == 6
    assert off["o000"].train.optimizer.lr == bench.recorder.specs["t000"].train.optimizer.lr
    assert "baseline" not in bench.recorder.specs
    see, baseline = bench.protocol.arms()
    assert (see.lineage[0], baseline.lineage[0], baseline.see_enabled) == ("t", "o", False)
    assert see.reranked
    assert baseline.reranked
    assert set(baseline.values) == {"train.optimizer.lr"}
    assert see.seeds == baseline.seeds == (0, 1, 2)
    reranked = Counter(spec.see.enabled for lineage, spec in bench.recorder.specs.items() if lineage.startswith("rerank"))
    assert reranked == {True: 4, False: 4}
    order = [lineage for lineage, _ in bench.recorder.ended if lineage[0] in "to"]
    assert [lineage[0] for lineage in order] == ["o", "t"] * 6


def test_both_searches_go_on_after_a_cut_and_are_extended_together(open_bench: Callable[..., Any], study_text: str) -> None:
    open_bench(with_lr(study_text)).run(epochs=15)
    open_bench(with_lr(study_text)).run()
    bench = open_bench(with_lr(study_text).replace("trials: 6", "trials: 7"))
    bench.run()
    assert [row.lineage for row in bench.search.finished()] == [f"t{number:03d}" for number in range(7)]
    assert [lineage for lineage, _ in bench.recorder.ended if lineage[0] in "to"] == ["o006", "t006"]


def test_points_to_start_with_are_tried_without_their_see_in_the_search_with_see_off(
    open_bench: Callable[..., Any], study_text: str
) -> None:
    points = "[{train.optimizer.lr: 0.002, see.n_aug: 8}, {train.optimizer.lr: 0.002, see.n_aug: 4}, {see.n_aug: 2}]"
    bench = open_bench(f"{with_lr(study_text)}\nstart_with: {points}", until="search")
    bench.run()
    tried = {lineage: spec.train.optimizer.lr for lineage, spec in bench.recorder.specs.items()}
    assert [lineage for lineage, lr in tried.items() if lr == 0.002] == ["o001", "t001", "t002"]
    assert len([lineage for lineage in tried if lineage.startswith("o")]) == 6


def test_changed_range_of_see_leaves_the_search_with_see_off_as_it_is(open_bench: Callable[..., Any], study_text: str) -> None:
    open_bench(with_lr(study_text), until="search").run()
    wider = open_bench(with_lr(study_text).replace("[0.0, 2.0]", "[0.0, 3.0]"), until="search")
    wider.run()
    assert wider.recorder.ended == []
    moved = open_bench(with_lr(study_text).replace("1.0e-5, 1.0e-2", "1.0e-3, 1.0e-2"), until="search")
    moved.run()
    again = [lineage for lineage, _ in moved.recorder.ended if lineage.startswith("o")]
    assert again
    assert min(int(lineage[1:]) for lineage in again) >= 6


def test_planned_epochs_are_those_that_an_unpruned_study_trains(study_text: str) -> None:
    def planned(text: str) -> PlannedEpochs:
        return plan_epochs(parse_study(text, "study.yaml").spec, 6)

    assert planned(study_text) == PlannedEpochs(24, 4, (2 + 1) * 2 * 4 + 3 * 2 * 4)
    assert planned(with_lr(study_text)) == PlannedEpochs(24, 24, (2 + 2) * 2 * 4 + 3 * 2 * 4)
    assert planned(study_text.replace("validation: {rerank_top: 2, rerank_folds: 2}", "repeat: 3")).search == 72
    assert planned(study_text.replace("final: {seeds: 3}", "final: none")) == PlannedEpochs(24, 4, 0)
