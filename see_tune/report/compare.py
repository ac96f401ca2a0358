"""Several studies side by side: the tables that papers print, as Markdown and LaTeX, and the searches in one figure.

Mean and standard deviation over training seeds, the 95 % interval of the mean beside them. What makes the numbers of two
studies mean different things is said above the table, not left to be found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import stdev

from see_tune.home import Home
from see_tune.report.document import Block, Figure, Page, Paragraph, Section, Table
from see_tune.report.figures import draw_overlaid_histories
from see_tune.report.html import render_html
from see_tune.report.markdown import render_markdown
from see_tune.report.numbers import gain_range, gain_verdict, metric_title, percent, share_range
from see_tune.report.record import StudyRecord, read_record
from see_tune.report.sections import objective_title, side_title
from see_tune.results import Arm, Interval

_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
_CAPTION = (
    "Percent; mean ± standard deviation over training seeds, and the 95 % interval of the mean. A gain has two intervals: over "
    "training seeds (Student's t, paired), and over test classes (bootstrap, paired)."
)
_COMPARED: dict[str, Callable[[StudyRecord], str]] = {
    "protocol": lambda record: record.spec.protocol,
    "dataset": lambda record: record.spec.dataset.called,
    "dataset fingerprint": lambda record: record.facts.get("fingerprint", "unknown"),
    "backbone": lambda record: record.spec.model.backbone,
    "dimension": lambda record: str(record.spec.model.embedding_dim),
    "crop": lambda record: record.facts.get("crop", "unknown"),
    "objective": lambda record: record.spec.objective,
}


@dataclass(frozen=True)
class Comparison:
    """Studies in the order they were named. warnings: why their numbers may not compare."""

    records: tuple[StudyRecord, ...]
    warnings: tuple[str, ...]
    table: Table

    def markdown(self) -> str:
        return render_markdown(self._page([]))

    def latex(self) -> str:
        """A ``tabular`` for ``\\usepackage{booktabs}``; the warnings are comments above it."""
        columns = "ll" + "r" * (len(self.table.header) - 2)
        lines = [f"% {line}" for warning in self.warnings for line in warning.splitlines()]
        lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _latex_row(self.table.header), r"\midrule"]
        for before, row in pairwise([self.table.header, *self.table.rows]):
            is_same = before[0] == row[0]
            lines += [] if is_same or before is self.table.header else [r"\addlinespace"]
            lines.append(_latex_row(["", *row[1:]] if is_same else row))
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def html(self) -> str:
        history = draw_overlaid_histories(self.records, objective_title(self.records[0]))
        return render_html(
            self._page([Section("The searches", [Figure("histories", history, "The best value so far, by trial.")])])
        )

    def write(self, folder: Path) -> tuple[Path, ...]:
        """compare.md, compare.tex and compare.html in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"compare.md": self.markdown(), "compare.tex": self.latex(), "compare.html": self.html()}
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        return tuple(folder / name for name in texts)

    def _page(self, more: Sequence[Section]) -> Page:
        warnings: list[Block] = [Paragraph(warning, is_warning=True) for warning in self.warnings]
        names = ", ".join(record.spec.study for record in self.records)
        return Page("Studies side by side", names, [Section("Test classes", [*warnings, self.table]), *more])


def compare_studies(names: Sequence[str], home: Home) -> Comparison:
    """The studies `names` of one home.

    Raises:
        StudyError: one of them does not exist.
    """
    records = tuple(read_record(name, home) for name in dict.fromkeys(names))
    return Comparison(records, tuple(_warnings(records)), _table(records))


def _warnings(records: Sequence[StudyRecord]) -> list[str]:
    found = []
    for what, read in _COMPARED.items():
        values = {record.spec.study: read(record) for record in records}
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{study} {value}" for study, value in values.items())
            found.append(f"{what} differs: {listed}; the numbers do not mean the same.")
    found += [f"{record.spec.study} is {record.state}." for record in records if record.state != "done"]
    return found


def _table(records: Sequence[StudyRecord]) -> Table:
    arms = [arm for record in records for arm in (record.result.see, record.result.off) if arm]
    metrics = sorted({name for arm in arms for name in arm.test if _is_shown(name)}, key=_metric_order)
    header = ["study", "side", "validation", "seeds"]
    for metric in metrics:
        header += [metric_title(metric), "95 % interval"] if metric == "test/recall_at_1" else [metric_title(metric)]
    rows = [row for record in records for row in _study_rows(record, metrics)]
    return Table(header, rows, _CAPTION)


def _study_rows(record: StudyRecord, metrics: Sequence[str]) -> list[list[str]]:
    see, off, gain = record.result.see, record.result.off, record.result.gain
    name = record.spec.study
    rows = [_arm_row(name, arm, metrics) for arm in (see, off) if arm]
    for over, interval in (("seeds", gain), ("classes", record.result.gain_over_classes)):
        if interval:
            cells = [name, f"gain over {over}", "", "", gain_range(interval).partition(" ")[0], _gain_cell(interval)]
            rows.append(_padded(cells, metrics))
    return rows or [_padded([name, "no answer yet"], metrics)]


def _padded(cells: list[str], metrics: Sequence[str]) -> list[str]:
    width = 4 + len(metrics) + ("test/recall_at_1" in metrics)
    return cells + [""] * (width - len(cells))


def _gain_cell(gain: Interval) -> str:
    interval = gain_range(gain).partition(" ")[2]
    return f"{interval} {gain_verdict(gain)}".strip()


def _arm_row(study: str, arm: Arm, metrics: Sequence[str]) -> list[str]:
    cells = [study, side_title(arm), percent(next(iter(arm.validation.values()))), str(len(arm.seeds)) if arm.seeds else ""]
    for metric in metrics:
        cells.append(_mean_and_deviation(arm, metric))
        if metric == "test/recall_at_1":
            cells.append(share_range(arm.test_mean[metric]) if metric in arm.test_mean else "")
    return cells


def _mean_and_deviation(arm: Arm, metric: str) -> str:
    values = arm.test.get(metric, ())
    if not values:
        return ""
    spread = f" ± {percent(stdev(values))}" if len(values) > 1 else ""
    return percent(arm.test_mean[metric].mean) + spread


def _is_shown(metric: str) -> bool:
    return re.fullmatch(r"test/(recall_at_\d+|map_at_r|r_precision)", metric) is not None


def _metric_order(metric: str) -> tuple[bool, int, str]:
    k = metric.rpartition("_")[2]
    return (not k.isdigit(), int(k) if k.isdigit() else 0, metric)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_latex(cell) for cell in cells) + r" \\"


def _latex(text: str) -> str:
    escaped = "".join(_LATEX_SPECIAL.get(character, character) for character in text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)  # a minus, not a hyphen
