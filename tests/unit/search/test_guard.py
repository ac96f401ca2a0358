"""When a study that only fails is stopped, and what it says then."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from see_tune.results import TrialResult
from see_tune.search.guard import FailureGuard, Quarantine

FAILED, COMPLETE = TrialResult("failed", cause="loss is nan at epoch 1"), TrialResult("complete")


def guarded(*ends: tuple[TrialResult, str]) -> FailureGuard:
    guard = FailureGuard(SimpleNamespace(stopping=False))  # type: ignore[arg-type]
    for result, device in ends:
        guard.on_end(SimpleNamespace(where=device), result)  # type: ignore[arg-type]
    return guard


def test_five_in_a_row_over_different_devices_stop_the_study() -> None:
    guard = guarded((COMPLETE, "a:0"), *[(FAILED, f"a:{number % 2}") for number in range(4)])
    assert not guard.desk.stopping
    guard.on_end(SimpleNamespace(where="a:1"), FAILED)
    assert guard.desk.stopping


def test_the_only_device_there_is_needs_no_other_to_be_compared_with() -> None:
    assert guarded(*[(FAILED, "a:cpu")] * 5).desk.stopping


def test_one_bad_device_beside_a_good_one_is_not_the_studys_fault() -> None:
    assert not guarded((COMPLETE, "a:0"), *[(FAILED, "a:1")] * 5).desk.stopping


def test_half_of_ten_stop_the_study_though_never_five_in_a_row() -> None:
    ends = [(FAILED, "a:0"), (COMPLETE, "a:0")] * 5
    assert not guarded(*ends[:-2]).desk.stopping
    assert guarded(*reversed(ends)).desk.stopping


def test_interrupted_trials_do_not_count() -> None:
    assert not guarded(*[(FAILED, "a:0")] * 4, *[(TrialResult("interrupted"), "a:0")] * 9).desk.stopping


def test_verdict_says_what_the_failures_have_in_common() -> None:
    other = TrialResult("failed", cause="out of memory at micro-batch 1")
    verdict = guarded(*[(FAILED, "a:0")] * 4, (other, "a:0")).verdict
    assert "5 of 5 trials failed (all on a:0)" in verdict
    assert "loss is nan at epoch 1 (4 times)" in verdict
    assert "out of memory at micro-batch 1\n" in verdict
    assert "run the same command again" in verdict


@given(st.lists(st.booleans(), max_size=30))
@settings(deadline=None)
def test_on_one_device_the_rule_is_five_in_a_row_or_half_of_ten(failures: list[bool]) -> None:
    guard = guarded(*[(FAILED if failed else COMPLETE, "a:0") for failed in failures])
    prefixes = [failures[:end] for end in range(1, len(failures) + 1)]
    bad = [p for p in prefixes if p[-1] and ((len(p) >= 5 and all(p[-5:])) or (len(p) >= 10 and 2 * sum(p) >= len(p)))]
    assert guard.desk.stopping == bool(bad)


def test_stopped_desk_puts_running_rows_back(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    guard = FailureGuard(bench.desk)
    bench.desk._listeners.append(guard)
    for number in range(5):
        bench.desk.take(f"ray-{number}")
        bench.desk.receive(f"ray-{number}", {"outcome": FAILED.to_json(), "where": "a:cpu"})
        bench.desk.close(f"ray-{number}", lost=False)
    assert bench.desk.take("another") is None
    assert guard.verdict


@pytest.mark.parametrize("result", [FAILED, COMPLETE])
def test_a_guard_without_a_desk_only_counts(result: TrialResult) -> None:
    guard = FailureGuard()
    for _ in range(12):
        guard.on_end(SimpleNamespace(where="a:0"), result)  # type: ignore[arg-type]
    assert guard.verdict == ""


LOST = TrialResult("interrupted", cause="its worker was lost; it goes on from its checkpoint")


def quarantined(*ends: tuple[TrialResult, str]) -> list[str]:
    notes: list[str] = []
    desk = SimpleNamespace(quarantined={})
    quarantine = Quarantine(2, desk, notes.append)  # type: ignore[arg-type]
    for result, device in ends:
        quarantine.on_end(SimpleNamespace(where=device), result)  # type: ignore[arg-type]
    assert len(notes) == len(desk.quarantined)
    return sorted(desk.quarantined)


@pytest.mark.parametrize("bad", [FAILED, LOST])
def test_device_that_fails_twice_in_a_row_beside_a_good_one_is_set_aside(bad: TrialResult) -> None:
    assert quarantined((COMPLETE, "a:0"), (bad, "a:1"), (bad, "a:1")) == ["a:1"]


def test_the_good_one_may_end_later() -> None:
    assert quarantined((FAILED, "a:1"), (FAILED, "a:1"), (COMPLETE, "a:0")) == ["a:1"]


@pytest.mark.parametrize(
    "ends",
    [
        [(FAILED, "a:1"), (FAILED, "a:1")],  # nothing to compare it with
        [(COMPLETE, "a:0"), (FAILED, "a:1"), (COMPLETE, "a:1"), (FAILED, "a:1")],
        [(COMPLETE, "a:0"), (FAILED, "a:0"), (FAILED, "a:1"), (FAILED, "a:1")],  # the others fail, too
        [(COMPLETE, "a:0"), (FAILED, "a:1"), (TrialResult("interrupted"), "a:1")],
        [(COMPLETE, "a:0"), (LOST, ""), (LOST, "")],  # nobody knows where
    ],
)
def test_a_device_stays_in_use(ends: list[tuple[TrialResult, str]]) -> None:
    assert quarantined(*ends) == []


def test_node_whose_devices_fail_in_turn_is_set_aside_as_a_whole() -> None:
    assert quarantined((COMPLETE, "a:0"), (FAILED, "b:0"), (FAILED, "b:1"), (FAILED, "b:0")) == ["b"]


def test_the_last_device_is_never_set_aside() -> None:
    ends = [(COMPLETE, "a:0"), *[(FAILED, "a:1")] * 2, *[(FAILED, "a:0")] * 4]
    assert quarantined(*ends) == ["a:1"]


def test_quarantined_devices_row_goes_back_and_its_place_stays_taken(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk.slots = 2
    bench.desk.quarantined["b:0"] = "loss is nan"
    config = bench.desk.take("x")
    assert config["quarantined"] == ["b:0"]
    assert not bench.desk.receive("x", {"given_back": "quarantined", "where": "b:0"})
    assert bench.final.waiting_lineages() == (config["lineage"],)
    assert bench.desk.take("y")["lineage"] == config["lineage"]
    assert bench.desk.take("z") is None
    assert not bench.desk.receive("x", {"where": "b:0"})
    bench.desk.finished = True
    assert bench.desk.receive("x", {"where": "b:0"})
    bench.desk.close("x", lost=False)
    assert bench.desk.parked == {}


def test_row_on_a_node_that_nobody_has_looked_at_goes_back_and_waits_there(open_bench: Callable[..., Any]) -> None:
    bench = open_bench()
    bench.desk.slots = 2
    bench.desk.nodes = frozenset({"old"})
    config = bench.desk.take("x")
    assert config["nodes"] == ["old"]
    assert not bench.desk.receive("x", {"given_back": "new", "where": "b:cpu", "node": "joined"})
    assert bench.final.waiting_lineages() == (config["lineage"],)
    assert not bench.desk.receive("x", {"where": "b:cpu", "node": "joined"})
    bench.desk.nodes = frozenset({"old", "joined"})
    assert bench.desk.receive("x", {"where": "b:cpu", "node": "joined"})
    bench.desk.close("x", lost=False)

    bench.desk.take("y")
    bench.desk.receive("y", {"given_back": "new", "where": "c:cpu", "node": "blind"})
    bench.desk.unfit = {"blind": "does not see the home folder"}
    assert bench.desk.receive("y", {"where": "c:cpu", "node": "blind"})
