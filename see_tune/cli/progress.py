"""A running study on the terminal: redrawn in place, or one line a finished trial where stdout is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from see_tune.cli.show import duration
from see_tune.home import StudyFolder
from see_tune.report.numbers import describe_values, device_hours, percent
from see_tune.results import TrialResult
from see_tune.search.board import Best, Board, RunningTrial, Snapshot, Watcher
from see_tune.search.desk import Work
from see_tune.search.rows import row_title
from see_tune.spec.models import StudySpec

_WIDTH = 80
_STARVED = 0.3


def choose_watcher(as_json: bool) -> Watcher:
    """What suits stdout: the live panel, plain lines, or, for --json, plain lines on stderr."""
    if as_json:
        return PlainProgress(sys.stderr)
    return LiveProgress() if sys.stdout.isatty() else PlainProgress(sys.stdout)


class PlainProgress(Watcher):
    """One line a finished row."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._board: Board | None = None

    def decoding(self, done: int, total: int) -> None:
        if done == total or done % max(1, total // 10) == 0:
            self._print(f"checking that images decode: {done}/{total}")

    def begin(self, spec: StudySpec, board: Board, folder: StudyFolder) -> None:
        self._board = board
        self._print(title(spec, folder))

    def note(self, text: str) -> None:
        self._print(text)

    def on_end(self, work: Work, result: TrialResult) -> None:
        if self._board is not None:
            self._print(ended_line(work, result, self._board.snapshot()))

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveProgress(Watcher):
    """The panel of at most 80 columns, redrawn twice a second."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live: Live | None = None

    def decoding(self, done: int, total: int) -> None:
        self._console.print(f"checking that images decode: {done}/{total}", end="\r" if done < total else "\n", highlight=False)

    def begin(self, spec: StudySpec, board: Board, folder: StudyFolder) -> None:
        head = title(spec, folder)
        self._live = Live(
            get_renderable=lambda: Group(*map(_cropped, panel_lines(head, board.snapshot()))),
            console=self._console,
            refresh_per_second=2,
            transient=True,
        )
        self._live.start()

    def note(self, text: str) -> None:
        (self._live.console if self._live else self._console).print(text, markup=False, highlight=False)

    def end(self) -> None:
        if self._live:
            self._live.stop()


def _cropped(line: str) -> Text:
    return Text(line, no_wrap=True, overflow="crop")


def title(spec: StudySpec, folder: StudyFolder) -> str:
    model = f"{spec.model.backbone}/{spec.model.embedding_dim}"
    return f"{spec.study}  {spec.dataset.called}  {model}  {spec.protocol}  {folder.root}"


def panel_lines(head: str, now: Snapshot) -> list[str]:
    """The panel: counts and time left, what comes then, the best beside SEE off, a line a running trial."""
    left = f"{duration(now.left_s)} left" if now.left_s is not None else "time left after the first epoch"
    lines = [
        head,
        f"{now.phase:<8} {now.finished}/{now.total}  pruned {now.pruned}  failed {now.failed}   "
        f"{duration(now.spent_s)} spent  {left}",
        f"then     {now.plan}   {device_hours(now.device_s / 3600)} so far",
        f"best     {best_text(now.best, now.off)}",
    ]
    if now.running:
        lines.append(f"{'device':<14} {'trial':<22} {'epoch':>7} {'val R@1':>8} {'img/s':>7} {'wait':>5}")
    lines += [_running_line(trial) for trial in now.running]
    lines.append("Ctrl-C: stop and keep")
    return lines


def best_text(best: Best | None, off: Best | None) -> str:
    beside = f"SEE off {percent(off.value)}" if off else "SEE off not yet measured"
    return f"{best.lineage} {percent(best.value)}   {beside}   {describe_values(best.values)}" if best else f"none yet   {beside}"


def _running_line(trial: RunningTrial) -> str:
    value = percent(trial.value) if trial.value is not None else "-"
    speed = f"{trial.images_per_s:.0f}" if trial.images_per_s is not None else "-"
    wait = f"{trial.wait_share:.0%}" if trial.wait_share is not None else "-"
    starved = "  starved for data" if (trial.wait_share or 0) > _STARVED else ""
    cells = _cells((trial.where[-14:], 14), (trial.title[:22], 22))
    return f"{cells} {f'{trial.epoch}/{trial.last_epoch}':>7} {value:>8} {speed:>7} {wait:>5}{starved}"


def _cells(*columns: tuple[str, int]) -> str:
    return " ".join(f"{text:<{width}}" for text, width in columns)


def ended_line(work: Work, result: TrialResult, now: Snapshot) -> str:
    """``[12/12 4m10 left] t011 complete 71.3 (epoch 7)  n12 l.31   best t003 72.0, SEE off 71.1``."""
    left = f" {duration(now.left_s)} left" if now.left_s is not None else ""
    value = f" {percent(result.best_value)} (epoch {result.best_epoch})" if result.best_value is not None else ""
    cause = f": {result.cause}" if result.cause else ""
    parts: Iterable[str] = (
        f"[{now.finished}/{now.total}{left}] {row_title(work.row)} {result.status}{value}{cause}",
        describe_values(work.row.values),
        f"best {now.best.lineage} {percent(now.best.value)}" if now.best and not work.row.plan else "",
        f"SEE off {percent(now.off.value)}" if now.off and not work.row.plan else "",
    )
    return "   ".join(part for part in parts if part)
