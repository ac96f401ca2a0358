"""A study's answer as text."""

from __future__ import annotations

from pathlib import Path

from see_tune.home import StudyFolder
from see_tune.report.numbers import (
    baseline_ahead,
    describe_values,
    device_hours,
    gain_range,
    gain_verdict,
    looked_at,
    percent,
    with_spread,
)
from see_tune.results import Arm, Interval, StudyResult
from see_tune.wording import counted

_SPREAD = len("85.0 [62.3, 100.0]  ")
SEARCH_ENDED = {
    "exhausted": "the space is exhausted: no untried point was left",
    "hours": "ended by budget.hours",
    "device_hours": "ended by budget.device_hours",
}


def print_result(result: StudyResult) -> None:
    """The summary at the end of a study."""
    for line in result_lines(result):
        print(line)


def result_lines(result: StudyResult) -> list[str]:
    """The answer in at most 80 columns, and where things lie."""
    lines = answer_lines(result)
    if result.champion:
        lines.append(f"champion         {result.champion}   {result.champion_note}")
    else:
        lines.append(f"champion         none: {result.champion_note}")
    lines.append(f"study            {result.folder}")
    lines.append(
        f"tracking         {result.tracking}"
        + (f"   {counted(result.undelivered, 'event')} queued" if result.undelivered else "")
    )
    lines += [f"  tracking: {problem}" for problem in result.tracking_problems]
    if not result.tracking.startswith("http"):  # a server shows its own UI, there
        lines.append(f"look at it       {result.commands['ui']}")
    if (report := StudyFolder(Path(result.folder)).report_file).is_file():
        lines.append(f"report           {report}")
    if result.status == "interrupted":
        lines.append(f"continue         {result.commands['continue']}")
    return lines


def answer_lines(result: StudyResult) -> list[str]:
    """What was found, without where it lies; recalls in percent, one decimal."""
    lines = [
        f"{result.status} {duration(result.wall_s)}, {device_hours(result.device_hours)}   "
        f"{result.complete} complete, {result.pruned} pruned, {result.failed} failed"
    ]
    lines += [f"  {lineage} failed: {cause}" for lineage, cause in result.failures.items()]
    lines += [f"  quarantined {name}: {cause}" for name, cause in result.quarantined.items()]
    if result.search_ended in SEARCH_ENDED:
        lines.append(f"search           {SEARCH_ENDED[result.search_ended]}")
    if result.see:
        lines.append(f"best parameters  {describe_values(result.see.values)}   ({result.see.lineage}, epoch {result.see.epoch})")
        for name, value in result.see.values.items():
            lines.append(f"  {name}: {value:.4g}" if isinstance(value, float) else f"  {name}: {value}")
    lines += _validation(result)
    if result.see and result.see.see_enabled and not result.see.see_expands:
        lines.append(f"{'SEE':<17}expands nothing by epoch {result.see.epoch}, its best: trained as SEE off is")
    if ahead := baseline_ahead(result):
        lines.append(f"{'':<17}{ahead}")
    lines += _test(result)
    if result.test_looks:
        lines.append(f"test classes     {looked_at(result.test_looks)}")
    return lines


def _validation(result: StudyResult) -> list[str]:
    found = _arms(result)
    if not found:
        return []
    if result.protocol == "paper":
        head, how = "test R@1", "chosen on these test classes: comparable with the papers' tables alone"
    else:
        head, how = "validation R@1", "mean over folds" if all(arm.reranked for _, arm in found) else "held-out training classes"
    values = "   ".join(f"{label} {percent(next(iter(arm.validation.values())))}" for label, arm in found)
    return [f"{head:<17}{values}   ({how})"]


def _test(result: StudyResult) -> list[str]:
    if result.see is None or not result.see.test_mean:
        return []
    names = [name for name in result.see.test_mean if name.startswith("test/recall_at_")]
    seeds = counted(len(result.see.seeds), "seed")
    first, *others = (f"R@{name.rpartition('_')[2]}" for name in names)
    lines = [f"{f'test, {seeds}':<17}{first:<{_SPREAD}}{''.join(f'{k:<7}' for k in others)}".rstrip()]
    lines += [_test_row(label, arm, names) for label, arm in _arms(result) if arm.test_mean]
    if result.off and not result.see.see_enabled:
        lines.append(f"{'gain':<17}none of SEE: the configuration that was chosen has it off")
    return lines + _gain(result.gain, result.gain_over_classes)


def _gain(over_seeds: Interval | None, over_classes: Interval | None) -> list[str]:
    """The gain with what may be said of it, by each of its two intervals."""
    if over_seeds is None:
        return []
    lines = [f"{'gain':<17}{gain_range(over_seeds):<23}over training seeds: {gain_verdict(over_seeds)}"]
    if over_classes and over_classes.low is not None:
        lines.append(f"{'':<17}{gain_range(over_classes):<23}over test classes: {gain_verdict(over_classes)}")
    return lines


def _arms(result: StudyResult) -> list[tuple[str, Arm]]:
    return [("SEE" if arm.see_enabled else "SEE off", arm) for arm in (result.see, result.off) if arm]


def _test_row(label: str, arm: Arm, names: list[str]) -> str:
    others = "".join(f"{percent(arm.test_mean[name].mean):<7}" for name in names[1:])
    return f"{label:<17}{with_spread(arm.test_mean[names[0]], '+-'):<{_SPREAD}}{others}".rstrip()


def duration(seconds: float) -> str:
    """``42s``, ``3m12``, ``11h04``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02d}" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60:02d}"
