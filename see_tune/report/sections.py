"""What a study's report says, section by section, from its record alone.

The answer comes first, then what it rests on: the search, failures and cost, and how to do it again. A section with nothing
to say yet is left out.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from see_tune.report.document import Block, Code, Figure, Lines, Paragraph, Section, Table
from see_tune.report.figures import draw_curves, draw_history, draw_importances, draw_parallel, draw_slices
from see_tune.report.importance import importances, in_words
from see_tune.report.numbers import (
    baseline_ahead,
    device_hours,
    duration,
    gain_range,
    gain_verdict,
    looked_at,
    metric_title,
    percent,
    points,
    setting,
    with_spread,
)
from see_tune.report.paper import SOURCE, paper_rows
from see_tune.report.record import StudyRecord
from see_tune.report.statistics import paired_gain
from see_tune.results import Arm, Interval
from see_tune.search.rows import FinishedRow, row_title
from see_tune.spec.load import dump_study, grace_epochs, trial_values
from see_tune.spec.models import StudySpec
from see_tune.wording import counted

_SHOWN_CONFIGURATIONS = 10
_PHASES = {"search": "search", "baseline": "SEE off beside it", "rerank": "re-rank", "final": "final"}
_VERSIONS = ("python", "torch", "torchvision", "timm", "pytorch-metric-learning", "numpy", "pillow")
_MEASURED = {
    "fingerprint": "dataset fingerprint",
    "split": "split hash",
    "train_images": "training images",
    "train_classes": "training classes",
    "queries": "queries",
    "gallery": "gallery",
    "weights": "weights",
    "weights_hash": "weights' hash",
    "parameters": "parameters",
    "pooling": "pooling",
    "batch_norm": "BatchNorm",
    "crop": "crop",
    "amp": "half precision",
    "device": "device",
    "threads": "threads a trial",
    "notes": "notes",
}


def study_sections(record: StudyRecord) -> list[Section]:
    """Every section that has something to say."""
    sections = [
        Section("The study", [Lines(tuple(_five_lines(record))), *_warnings(record)]),
        Section("On the test classes", list(_final(record))),
        Section("Beside the paper", list(_paper(record))),
        Section("Best configurations", list(_configurations(record))),
        Section("What mattered", list(_importance(record))),
        Section("The search", list(_search(record))),
        Section("Saved by pruning", list(_savings(record))),
        Section("Failures", list(_failures(record))),
        Section("Cost", list(_cost(record))),
        Section("How to reproduce", list(_reproduction(record))),
    ]
    return [section for section in sections if section.blocks]


# The study


def objective_title(record: StudyRecord) -> str:
    """``validation R@1, %``"""
    metric = trial_values(record.spec).objective_metric
    side = "test" if metric.startswith("test/") else "validation"
    return f"{side} {metric_title(metric)}, %"


def _five_lines(record: StudyRecord) -> Iterator[str]:
    spec, result = record.spec, record.result
    searched = ", ".join(parameter.name for parameter in record.loaded.space.parameters)
    backbone = f"{spec.model.backbone}, {counted(spec.model.embedding_dim, 'dimension')}"
    see = "with" if spec.see.enabled else "without"
    yield f"What: {spec.dataset.called}, {backbone}, {spec.loss.name} {see} SEE; searched: {searched}."
    yield (
        f"State: {record.state}. {result.trials} of {spec.budget.trials} trials: {result.complete} complete, "
        f"{result.pruned} pruned, {result.failed} failed; {duration(result.wall_s)}, {device_hours(result.device_hours)}."
    )
    yield f"Chosen: {_chosen(record)}"
    yield f"Test: {_tested(record)}"
    yield f"Protocol: {_protocol(record)}"


def _chosen(record: StudyRecord) -> str:
    see, off = record.result.see, record.result.off
    if see is None:
        return "nothing yet: no trial is complete."
    how = f"mean over {counted(record.spec.validation.rerank_folds, 'fold')}" if see.reranked else _own_validation(record.spec)
    values = ", ".join(f"{name} {setting(value)}" for name, value in see.values.items())
    beside = f", {side_title(off)} {percent(_value(off))}" if off else ""
    same = " SEE expands nothing by that epoch: it trained as SEE off does, and this is no comparison of the two."
    unlike = "" if see.see_expands or not see.see_enabled else same
    return f"{see.lineage} with {percent(_value(see))} after epoch {see.epoch} ({how}{beside}): {values}.{unlike}"


def _own_validation(spec: StudySpec) -> str:
    members = (spec.validation.folds or 1) * spec.repeat
    return f"mean over its {members} trainings" if members > 1 else "its own validation classes"


def side_title(arm: Arm) -> str:
    """What people call a side of the comparison: SEE, or SEE off, also where a study was told to search without it."""
    return "SEE" if arm.see_enabled else "SEE off"


def _value(arm: Arm) -> float:
    return next(iter(arm.validation.values()))


def _tested(record: StudyRecord) -> str:
    result, metric = record.result, "test/recall_at_1"
    if result.see is None or metric not in result.see.test_mean:
        return "the test classes have not been met."
    seeds = counted(len(result.see.seeds), "seed")
    text = f"R@1 of {side_title(result.see)} {with_spread(result.see.test_mean[metric])} over {seeds}"
    if result.off and metric in result.off.test_mean:
        text += f", {side_title(result.off)} {with_spread(result.off.test_mean[metric])}"
    if result.gain:
        text += f"; gain {gain_range(result.gain)} points over training seeds: {gain_verdict(result.gain)}"
    if (over := result.gain_over_classes) and over.low is not None:
        text += f"; {gain_range(over).partition(' ')[2]} over test classes: {gain_verdict(over)}"
    return f"{text}."


def _protocol(record: StudyRecord) -> str:
    if record.spec.protocol == "paper":
        return "paper. Chosen on the test classes, epoch by epoch, as the papers did: no champion comes of it."
    champion, note = record.result.champion, record.result.champion_note
    kept = f"Champion: {champion} ({note})." if champion else f"No champion: {note}."
    return f"honest. No trial saw a test class. {kept}"


def _warnings(record: StudyRecord) -> Iterator[Block]:
    if record.searched and record.result.see is None:
        yield Paragraph(
            "No trial is complete, so there is no answer. The causes are below; see-tune train "
            f"{record.folder.spec_file} runs one trial alone.",
            is_warning=True,
        )
    if record.result.see and record.result.off and record.result.see.reranked != record.result.off.reranked:
        yield Paragraph("The two sides were not re-ranked alike: their validation numbers do not compare.", is_warning=True)


# SEE against SEE off


def _final(record: StudyRecord) -> Iterator[Block]:
    see, off, looks = record.result.see, record.result.off, record.result.test_looks
    if see is None or not see.test:
        return
    yield from _verdicts(record, see)
    chosen = "" if record.spec.protocol == "paper" else ", chosen without them"
    yield Table(
        ["", side_title(see), side_title(off) if off else "", "gain [95 %]", ""],
        [_final_row(name, see, off) for name in _reported(see)],
        f"Percent on the test classes{chosen}; ± is half of the 95 % interval (Student's t) over training seeds, in brackets "
        "where it is cut at 0 or 100; the gain is paired by seed.",
        strong=[0],
    )
    if off:
        header = ["seed", f"{side_title(see)} R@1", f"{side_title(off)} R@1", "gain"]
        yield Table(header, _by_seed(see, off), "Each seed met the test classes once a side.")
    if looks:
        yield Paragraph(
            f"The test classes of {record.spec.dataset.called} were {looked_at(looks)} (from this home). The best of many looks "
            "is partly luck, also where each was honest."
        )


def _verdicts(record: StudyRecord, see: Arm) -> Iterator[Block]:
    """What may be said of SEE, by each interval."""
    gain, over_classes = record.result.gain, record.result.gain_over_classes
    if record.result.off and not see.see_enabled:
        yield Paragraph(
            f"The configuration that was chosen, {see.lineage}, has SEE off, as the baseline has: this is no comparison of SEE."
        )
    if ahead := baseline_ahead(record.result):
        yield Paragraph(f"{ahead}.")
    if gain:
        yield Paragraph(_verdict(gain, len(see.seeds)))
    if over_classes and over_classes.low is not None:
        yield Paragraph(
            f"Over test classes the 95 % interval of the same difference is {gain_range(over_classes).partition(' ')[2]}: "
            f"{gain_verdict(over_classes)}. It says what other classes would give these trainings (paired bootstrap: whole "
            "classes are drawn with replacement, a query's difference is its mean over the seeds); the one over seeds says what "
            "other trainings would give on these classes."
        )


def _final_row(name: str, see: Arm, off: Arm | None) -> list[str]:
    gain = _gain(see, off, name) if off else None
    return [
        metric_title(name),
        with_spread(see.test_mean[name]),
        with_spread(off.test_mean[name]) if off and name in off.test_mean else "",
        gain_range(gain) if gain else "",
        gain_verdict(gain) if gain else "",
    ]


def _reported(arm: Arm) -> list[str]:
    """Recalls first, by k, then MAP@R and R-precision."""
    recalls = sorted((name for name in arm.test if "recall_at_" in name), key=lambda name: int(name.rpartition("_")[2]))
    return recalls + [name for name in ("test/map_at_r", "test/r_precision") if name in arm.test]


def _by_seed(see: Arm, off: Arm) -> list[list[str]]:
    name = "test/recall_at_1"
    with_see = dict(zip(see.seeds, see.test[name], strict=True))
    without = dict(zip(off.seeds, off.test[name], strict=True)) if name in off.test else {}
    return [
        [
            str(seed),
            percent(with_see[seed]) if seed in with_see else "",
            percent(without[seed]) if seed in without else "",
            points(with_see[seed] - without[seed]) if seed in with_see and seed in without else "",
        ]
        for seed in sorted({*with_see, *without})
    ]


def _gain(see: Arm, off: Arm, name: str) -> Interval | None:
    if name not in see.test or name not in off.test or not see.see_enabled:
        return None
    with_see, without = dict(zip(see.seeds, see.test[name], strict=True)), dict(zip(off.seeds, off.test[name], strict=True))
    shared = sorted({*with_see} & {*without})
    return paired_gain([with_see[seed] for seed in shared], [without[seed] for seed in shared]) if shared else None


def _verdict(gain: Interval, seeds: int) -> str:
    match gain_verdict(gain):
        case "no gain shown":
            return (
                f"No gain shown: over {counted(seeds, 'seed')} SEE changed test R@1 by {points(gain.mean)} points, and the "
                f"95 % interval {gain_range(gain).partition(' ')[2]} holds 0."
            )
        case "gain":
            return f"SEE gained {points(gain.mean)} points of test R@1; the 95 % interval over seeds lies above 0."
        case "loss":
            return f"SEE lost: {points(gain.mean)} points of test R@1; the 95 % interval over seeds lies below 0."
        case verdict:
            return f"SEE changed test R@1 by {points(gain.mean)} points; {verdict}, so this may be chance."


# Beside the paper


def _paper(record: StudyRecord) -> Iterator[Block]:
    spec, see, off = record.spec, record.result.see, record.result.off
    theirs = paper_rows(spec.dataset.name, spec.model.backbone, spec.model.embedding_dim)
    if not theirs:
        return
    ks = sorted({k for row in theirs for k in row.recalls})
    rows = []
    for arm in (see, off):
        if arm and arm.test_mean:
            means = [arm.test_mean.get(f"test/recall_at_{k}") for k in ks]
            label = f"ours: {spec.loss.name}{' + SEE' if arm.see_enabled else ''}"
            rows.append([label, spec.protocol, *(percent(mean.mean) if mean else "" for mean in means)])
    ours = list(range(len(rows)))
    for row in sorted(theirs, key=lambda row: (row.loss != spec.loss.name, not row.see)):
        same = " (same loss)" if row.loss == spec.loss.name else ""
        cells = [f"{row.recalls[k]:.1f}" if k in row.recalls else "" for k in ks]
        rows.append([f"{row.method}{same}, Table {row.table}", "paper", *cells])
    yield Table(
        ["method", "protocol", *(f"R@{k}" for k in ks)],
        rows,
        f"{theirs[0].size} on {spec.dataset.name}; the paper's rows are from {SOURCE}.",
        strong=ours,
    )
    if spec.protocol == "honest":
        yield Paragraph(
            "The paper's numbers were chosen on the test classes, epoch by epoch, ours were not: they are not comparable. "
            "protocol: paper in the YAML measures as they did.",
            is_warning=True,
        )


# Best configurations


def _configurations(record: StudyRecord) -> Iterator[Block]:
    complete = record.complete
    if not complete:
        return
    reranked = record.reranked
    names = [parameter.name for parameter in record.loaded.space.parameters]
    ranked = sorted(complete, key=lambda row: -reranked.get(row.lineage, -1.0))[:_SHOWN_CONFIGURATIONS]
    rows = [_configuration(row, names, reranked) for row in ranked]
    if record.baseline:
        rows.append(_configuration(record.baseline, names, reranked, "SEE off"))
    header = ["trial", objective_title(record), "re-ranked", "best epoch", *_short_names(names)]
    more = f" The best {len(ranked)} of {counted(len(complete), 'complete trial')}." if len(ranked) < len(complete) else ""
    caption = f"Re-ranked: the mean over fresh seeds and folds, by which one was chosen.{more}" if reranked else more.strip()
    if not reranked:
        header, rows = _without_column(2, header, rows)
    chosen = [place for place, row in enumerate(ranked) if record.result.see and row.lineage == record.result.see.lineage]
    yield Table(header, rows, caption, strong=chosen)


def _short_names(names: Sequence[str]) -> list[str]:
    """The last part of each dotted key, or the whole where two end alike."""
    ends = Counter(name.rpartition(".")[2] for name in names)
    return [end if ends[end := name.rpartition(".")[2]] == 1 else name for name in names]


def _without_column(column: int, header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    return header[:column] + header[column + 1 :], [row[:column] + row[column + 1 :] for row in rows]


def _configuration(row: FinishedRow, names: Sequence[str], reranked: Mapping[str, float], title: str = "") -> list[str]:
    mean = reranked.get(row.lineage)
    return [
        title or row.lineage,
        percent(row.value or 0.0),
        percent(mean) if mean is not None else "",
        str(row.result.best_epoch or ""),
        *(setting(row.values[name]) if name in row.values else "" for name in names),
    ]


# What mattered


def _importance(record: StudyRecord) -> Iterator[Block]:
    if not record.complete:
        return
    shares = importances(record.complete, record.loaded.space)
    yield Paragraph(in_words(shares, len(record.complete)))
    if len(shares) > 1:
        yield from _figure(
            "importances", draw_importances(shares), "PED-ANOVA (Watanabe et al., IJCAI 2023) over the complete trials."
        )


# The search


def _search(record: StudyRecord) -> Iterator[Block]:
    title = objective_title(record)
    judged = None if record.spec.pruner.name == "none" else grace_epochs(record.loaded)
    yield from _figure("history", draw_history(record, title), "Every trial at its best epoch, in the order of the trials.")
    yield from _figure("slices", draw_slices(record, title), "Each searched value against the result; every dot is a trial.")
    yield from _figure(
        "parallel-coordinates", draw_parallel(record, title), "The complete trials, a line each; the darker, the better."
    )
    yield from _figure(
        "curves",
        draw_curves(record, title, judged),
        "Learning curves: complete trials blue, others grey, the best one and SEE off thick.",
    )


def _figure(name: str, plot: Any, caption: str) -> Iterator[Block]:
    if plot is not None:
        yield Figure(name, plot, caption)


# Saved by pruning


def _savings(record: StudyRecord) -> Iterator[Block]:
    pruned = [row for row in record.searched if row.result.status == "pruned"]
    if not pruned:
        return
    horizon = record.spec.train.epochs
    ended = Counter(_last_epoch(record, row) for row in pruned)
    saved = sum((horizon - epoch) * count for epoch, count in ended.items())
    planned = horizon * sum(row.result.status in ("complete", "pruned") for row in record.searched)
    yield Paragraph(
        f"{record.spec.pruner.name} ended {len(pruned)} of {counted(len(record.searched), 'trial')} early and saved {saved} of "
        f"{counted(planned, 'epoch')} ({saved / planned:.0%})."
    )
    rows = [[str(epoch), str(count), str((horizon - epoch) * count)] for epoch, count in sorted(ended.items())]
    yield Table(["ended after epoch", "trials", "epochs saved"], rows)


def _last_epoch(record: StudyRecord, row: FinishedRow) -> int:
    return max(record.curves.get(row.lineage, {0: 0.0}))


# Failures


def _failures(record: StudyRecord) -> Iterator[Block]:
    failed = [row for row in [*record.searched, *record.planned] if row.result.status == "failed"]
    if not failed:
        return
    by_cause: dict[str, list[FinishedRow]] = {}
    for row in failed:
        by_cause.setdefault(row.result.cause or "unknown", []).append(row)
    worst_first = sorted(by_cause.items(), key=lambda item: -len(item[1]))
    rows = [[cause, str(len(rows)), ", ".join(row_title(row) for row in rows)] for cause, rows in worst_first]
    yield Table(["cause", "times", "where"], rows)
    for cause, same in worst_first:
        if trace := same[0].result.traceback:
            yield Code(trace, f"traceback of {row_title(same[0])}: {cause.splitlines()[0][:80]}")


# Cost


def _cost(record: StudyRecord) -> Iterator[Block]:
    by_phase: dict[str, list[FinishedRow]] = {name: [] for name in _PHASES}
    for row in [*record.searched, *record.planned]:
        by_phase.setdefault(row.plan.get("phase", "search"), []).append(row)
    if not any(by_phase.values()):
        return
    rows = [_cost_row(_PHASES[phase], found) for phase, found in by_phase.items() if found]
    everything = [row for found in by_phase.values() for row in found]
    yield Table(
        ["phase", "trainings", "device-hours", "mean", "devices"],
        [*rows, _cost_row("all", everything)],
        f"Time spent training and evaluating; from start to end the study took {duration(record.result.wall_s)}.",
        strong=[len(rows)],
    )


def _cost_row(title: str, rows: Sequence[FinishedRow]) -> list[str]:
    seconds = sum(row.duration_s for row in rows)
    devices = ", ".join(sorted({row.result.device.rpartition(":")[2] for row in rows}))
    return [title, str(len(rows)), f"{seconds / 3600:.3g}", duration(seconds / len(rows)), devices]


# How to reproduce


def _of_phase(record: StudyRecord, phase: str) -> list[FinishedRow]:
    return [row for row in record.planned if row.plan.get("phase") == phase]


def _reproduction(record: StudyRecord) -> Iterator[Block]:
    spec, facts = record.spec, record.facts
    seeds = f"study {spec.seed}, sampler {spec.sampler.seed}"
    for phase, title in (("rerank", "re-rank"), ("final", "final")):
        drawn = {int(row.result.facts["seed"]) for row in _of_phase(record, phase) if "seed" in row.result.facts}
        seeds += f"; {title} {', '.join(map(str, sorted(drawn)))}" if drawn else ""
    yield Code(shlex.join(["see-tune", "run", str(record.folder.spec_file), "--home", "NEW_FOLDER"]))
    yield Paragraph(
        f"Seeds: {seeds}. The same seed, CPU model, thread count and versions give the same trainings; with several trials side "
        "by side the sampler sees their results in the order in which they end, and may suggest others."
    )
    ours = [(name, version(name)) for name in ("see-tune", "optuna", "ray", "mlflow")]
    versions = [(name, facts[name]) for name in _VERSIONS if name in facts]
    measured = [[title, facts[name]] for name, title in _MEASURED.items() if name in facts]
    if measured:
        yield Table(["measured on and with", ""], measured)
    yield Table(
        ["package", "version"],
        [[name, number] for name, number in [*versions, *ours]],
        "Those of the trainings; see-tune, optuna, ray and mlflow as installed where this report was made.",
    )
    yield Paragraph("Ties count against the query: a negative within 1e-6 of the best positive stands before it.")
    yield Code(dump_study(spec), "the study's YAML, every default written out")
