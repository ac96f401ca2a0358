"""What is stored of a study, read without touching it: the frozen YAML, the Optuna storage, the last summary.

The storage is opened read-only, and the rows that were cut and done again are no rows. So a report can be made while the
study runs, and requeues nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from see_tune.errors import StudyError
from see_tune.holding import holder_of
from see_tune.home import Home, StudyFolder
from see_tune.report.summary import study_result
from see_tune.results import StudyResult
from see_tune.search.generations import view_ledgers
from see_tune.search.protocol import Protocol
from see_tune.search.rows import OFF, FinishedRow
from see_tune.spec.load import Loaded, parse_study
from see_tune.spec.models import StudySpec
from see_tune.wording import counted


@dataclass(frozen=True)
class StudyRecord:
    """One study as it is stored at this moment.

    result: its summary, computed anew from the rows; the champion comes from the last session's summary.
    state: what it is doing, in words.
    searched, planned: finished rows; planned ones are the baseline, the re-ranking and the final runs.
    out: lineages of the rows that are out.
    curves: lineage -> epoch -> objective, also of rows that are out.
    reranked: lineage -> the best mean over folds of each configuration that was re-ranked.
    """

    loaded: Loaded
    folder: StudyFolder
    result: StudyResult
    state: str
    searched: tuple[FinishedRow, ...]
    planned: tuple[FinishedRow, ...]
    out: tuple[str, ...]
    curves: Mapping[str, Mapping[int, float]]
    reranked: Mapping[str, float]

    @property
    def spec(self) -> StudySpec:
        return self.loaded.spec

    @property
    def complete(self) -> list[FinishedRow]:
        """Complete searched rows, best first."""
        return sorted((row for row in self.searched if row.value is not None), key=lambda row: (-(row.value or 0.0), row.lineage))

    @property
    def baseline(self) -> FinishedRow | None:
        """The SEE-off row that ran beside the search, or the best of those that were searched; once it is complete."""
        measured = [row for row in self.planned if row.value is not None and row.plan.get("phase") == "baseline"]
        searched = [row for row in measured if row.lineage.startswith(OFF)]
        if searched:
            return max(searched, key=lambda row: row.value or 0.0)
        return next((row for row in measured if row.lineage == _baseline(self.planned)), None)

    @property
    def facts(self) -> Mapping[str, str]:
        """What the numbers were measured on and with: of a final run where there is one, else of any complete row."""
        finals = [row for row in self.planned if row.plan.get("phase") == "final"]
        return next((row.result.facts for row in [*finals, *self.planned, *self.complete] if row.result.facts), {})


def read_record(name: str, home: Home) -> StudyRecord:
    """The study `name` of this home.

    Raises:
        StudyError: there is no such study.
    """
    folder = home.study(name)
    if not folder.spec_file.is_file():
        known = ", ".join(sorted(file.parent.name for file in folder.root.parent.glob("*/study.yaml"))) or "none yet"
        raise StudyError(f"there is no study {name!r} in {home.root}; studies there: {known}. Another home: --home DIR")
    loaded = parse_study(folder.spec_file.read_text(encoding="utf-8"), str(folder.spec_file))
    stored = StudyResult.from_json(folder.summary_file.read_text(encoding="utf-8")) if folder.summary_file.is_file() else None
    ledgers = view_ledgers(folder, loaded.spec.study)
    searched = ledgers[0].finished() if ledgers else ()
    planned = tuple(row for ledger in ledgers[1:] if ledger for row in ledger.finished()) if ledgers else ()
    running = [row for ledger in ledgers if ledger for row in ledger.running()] if ledgers else []
    protocol = None
    if ledgers:
        search, final, beside = ledgers
        protocol = Protocol(loaded.spec, search, final, off=beside, until="final", baseline=_baseline(planned))
    see, off = protocol.arms() if protocol else (None, None)
    result = study_result(
        loaded.spec,
        searched,
        planned,
        see,
        off,
        status=stored.status if stored and not running else "interrupted",
        wall_s=stored.wall_s if stored else _span_s([*searched, *planned]),
        trained_s=sum(ledger.trained_s for ledger in ledgers or () if ledger),
        folder=folder,
        home=home,
        search_ended=stored.search_ended if stored else "",
    )
    if stored and (stored.champion or stored.status == "done"):  # the registry's word; else the rows say why there is none
        result = replace(result, champion=stored.champion, champion_note=stored.champion_note)
    curves = {row.lineage: row.curve for row in running}
    for ledger in ledgers or ():
        curves |= ledger.histories() if ledger else {}
    out = tuple(row.lineage for row in running)
    reranked = _reranked(protocol) if protocol else {}
    return StudyRecord(loaded, folder, result, _state(result, folder, len(out)), searched, planned, out, curves, reranked)


def _reranked(protocol: Protocol) -> dict[str, float]:
    candidates = [*protocol.candidates(), protocol.baseline()]
    return {candidate.lineage: candidate.value for candidate in candidates if candidate and candidate.reranked}


def _baseline(planned: tuple[FinishedRow, ...]) -> str:
    """The lineage of the SEE-off row beside the newest search space."""
    rows = [row.lineage for row in planned if row.plan.get("phase") == "baseline" and not row.plan["values"]]
    return rows[-1] if rows else "baseline"


def _span_s(rows: list[FinishedRow]) -> float:
    """Seconds from about the first start to the last end of these rows."""
    ends: list[tuple[datetime, float]] = [(row.ended_at, row.duration_s) for row in rows if row.ended_at]
    if not ends:
        return 0.0
    first, duration_s = min(ends)
    return (max(ends)[0] - first).total_seconds() + duration_s


def _state(result: StudyResult, folder: StudyFolder, out: int) -> str:
    if out and holder_of(folder) is not None:
        return f"running: {counted(out, 'row is', 'rows are')} out"
    if out:
        return f"cut off: {counted(out, 'row was', 'rows were')} out; it continues with: {result.commands['continue']}"
    if result.status == "done":
        return "done"
    if result.trials == 0:
        return "nothing has finished yet"
    if result.see is None and result.failed == result.trials:
        return "failed: every trial did"
    if result.status == "failed":
        return f"failed; once the cause is mended it continues with: {result.commands['continue']}"
    return f"not finished; it continues with: {result.commands['continue']}"
