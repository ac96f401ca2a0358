"""A study's ledgers -> its StudyResult: what the terminal, ``--json`` and summary.json say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from see_tune.home import Home, StudyFolder
from see_tune.looks import read_looks
from see_tune.report.statistics import mean_interval, mean_over_classes, paired_gain
from see_tune.results import Arm, Interval, Looks, StudyEnd, StudyResult
from see_tune.search.rows import FinishedRow, Side
from see_tune.spec.models import StudySpec
from see_tune.tracking.connection import store_uri


def study_result(
    spec: StudySpec,
    searched: Sequence[FinishedRow],
    planned: Sequence[FinishedRow],
    see: Arm | None,
    off: Arm | None,
    *,
    status: StudyEnd,
    wall_s: float,
    trained_s: float,
    folder: StudyFolder,
    home: Home,
    search_ended: str = "",
) -> StudyResult:
    """The summary of what is stored so far; the champion is added by whoever registered it."""
    rows = [*searched, *planned]
    return StudyResult(
        study=spec.study,
        dataset=spec.dataset.called,
        protocol=spec.protocol,
        status=status,
        trials=len(searched),
        complete=sum(row.result.status == "complete" for row in searched),
        pruned=sum(row.result.status == "pruned" for row in searched),
        failed=sum(row.result.status == "failed" for row in searched),
        failures={row.lineage: row.result.cause or "unknown" for row in rows if row.result.status == "failed"},
        see=_with_intervals(see) if see else None,
        off=_with_intervals(off) if off else None,
        gain=_gain(see, off),
        champion=None,
        champion_note=_no_champion(spec, planned),
        wall_s=wall_s,
        device_hours=trained_s / 3600,
        folder=str(folder.root),
        tracking=store_uri(home, spec.tracking.uri),
        undelivered=0,
        tracking_problems=(),
        commands={
            "ui": home.command("ui"),
            "continue": home.command("run", str(folder.spec_file)),
        },
        search_ended=search_ended,
        gain_over_classes=_gain_over_classes(planned, see, off, folder),
        test_looks=_looks(rows, home),
    )


def _no_champion(spec: StudySpec, planned: Sequence[FinishedRow]) -> str:
    """Why nothing is registered, as far as the rows say."""
    if spec.protocol == "paper":
        return "chosen on test classes"
    if spec.final is None:
        return "it has no final phase (final: none)"
    completed = any(row.plan.get("phase") == "final" and row.value is not None for row in planned)
    return "its final runs have not all completed" if completed else "no final run has completed"


def _looks(rows: Sequence[FinishedRow], home: Home) -> Looks | None:
    fingerprint = next((row.result.facts["fingerprint"] for row in rows if "fingerprint" in row.result.facts), None)
    looks = read_looks(home, fingerprint) if fingerprint else None
    return looks if looks and looks.times + looks.by_hand else None


def final_rows(planned: Sequence[FinishedRow], side: Side, arm: Arm) -> dict[int, FinishedRow]:
    """final seed -> the complete final run of that side."""
    return {
        row.plan["seed"]: row
        for row in planned
        if row.plan.get("phase") == "final"
        and (row.plan["side"], row.plan["of"], row.plan["epoch"]) == (side, arm.lineage, arm.epoch)
        and row.value is not None
    }


def _with_intervals(arm: Arm) -> Arm:
    return replace(arm, test_mean={name: mean_interval(values) for name, values in arm.test.items()})


def _gain(see: Arm | None, off: Arm | None, metric: str = "test/recall_at_1") -> Interval | None:
    """The paired gain over the seeds that both arms have finished; a winner that has SEE off shows none of SEE."""
    if see is None or off is None or not see.see_enabled:
        return None
    on_by_seed = dict(zip(see.seeds, see.test.get(metric, ()), strict=True)) if metric in see.test else {}
    off_by_seed = dict(zip(off.seeds, off.test.get(metric, ()), strict=True)) if metric in off.test else {}
    shared = sorted(set(on_by_seed) & set(off_by_seed))
    return paired_gain([on_by_seed[seed] for seed in shared], [off_by_seed[seed] for seed in shared]) if shared else None


def _gain_over_classes(planned: Sequence[FinishedRow], see: Arm | None, off: Arm | None, folder: StudyFolder) -> Interval | None:
    """The mean difference of the hits at each test query over the seeds that both arms have, with its interval over classes."""
    if see is None or off is None or not see.see_enabled:
        return None
    with_see, without = final_rows(planned, "see", see), final_rows(planned, "off", off)
    pairs = [
        (_hits(folder, with_see[seed].lineage), _hits(folder, without[seed].lineage))
        for seed in sorted(with_see.keys() & without)
    ]
    found = [(on, off) for on, off in pairs if on and off]
    if (
        not found
        or len(found) < len(pairs)
        or any(not np.array_equal(side[0], found[0][0][0]) for pair in found for side in pair)
    ):
        return None  # a run's ranks are gone, or the dataset became another one meanwhile
    differences = np.mean([on[1] - off[1] for on, off in found], axis=0)
    return mean_over_classes(differences, found[0][0][0])


def _hits(folder: StudyFolder, lineage: str) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """The classes of the queries that have a positive, and whether the nearest neighbour is one, as 1.0 or 0.0."""
    from see_tune.training.checkpoint import load_ranks  # with torch, which who asks for a status does not wait for

    stored = load_ranks(folder.trial(lineage))
    if stored is None:
        return None
    labels, ranks = stored
    counted = ranks > 0
    return labels[counted], (ranks[counted] == 1).astype(np.float64)
