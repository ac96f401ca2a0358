"""The figures of a study's report, drawn by plotly; all values in percent.

Each returns a plotly figure, or None where there is nothing to see yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from see_tune.home import settle_matplotlib
from see_tune.report.importance import as_optuna_study
from see_tune.report.numbers import setting
from see_tune.report.record import StudyRecord
from see_tune.search.rows import FinishedRow
from see_tune.spec.space import Choice, Parameter

_BLUE, _GREY, _ORANGE, _SOFT = "#1f5fa8", "#9aa5b1", "#d9730d", "#5b6775"
_ACROSS = 3
_LABEL_CHARACTERS = 24
_DETAILED_DECADES = 4


def draw_history(record: StudyRecord, title: str) -> Any:
    """Each trial's value in the order of the trials, the best so far, and SEE off."""
    complete = [row for row in record.searched if row.value is not None]
    if not complete:
        return None
    order = {row.lineage: place for place, row in enumerate(record.searched)}
    pruned = [row for row in record.searched if row.result.status == "pruned" and row.result.best_value is not None]
    figure = go.Figure()
    figure.add_trace(_dots(pruned, [order[row.lineage] for row in pruned], "pruned (best until then)", hollow=True))
    figure.add_trace(_dots(complete, [order[row.lineage] for row in complete], "complete"))
    steps = list(_best_so_far(complete, order))
    figure.add_trace(
        go.Scatter(
            x=[place for place, _ in steps],
            y=[value for _, value in steps],
            name="best so far",
            mode="lines",
            line={"color": _BLUE, "shape": "hv", "width": 1.5},
            hoverinfo="skip",
        )
    )
    _add_off(figure, record)
    lay_out(figure, x="trial", y=title)
    figure.update_xaxes(**_whole_numbers(0, len(record.searched)), range=[-0.5, len(record.searched) - 0.5])
    return figure


def _best_so_far(complete: Sequence[FinishedRow], order: Mapping[str, int]) -> Iterator[tuple[int, float]]:
    best = 0.0
    for row in complete:
        best = max(best, 100 * (row.value or 0.0))
        yield order[row.lineage], best


def draw_importances(shares: Mapping[str, float]) -> Any:
    """One bar a searched key."""
    if not shares:
        return None
    names = list(shares)[::-1]
    figure = go.Figure(
        go.Bar(
            x=[100 * shares[name] for name in names],
            y=names,
            orientation="h",
            marker_color=_BLUE,
            text=[f"{shares[name]:.0%}" for name in names],
            textposition="outside",
            cliponaxis=False,
            hoverinfo="skip",
        )
    )
    lay_out(figure, x="share of the importance, %", y="", height=110 + 34 * len(names))
    figure.update_xaxes(range=[0, 108])
    return figure


def draw_parallel(record: StudyRecord, title: str) -> Any:
    """Optuna's parallel coordinates of the complete trials; None for fewer than two of them, or of searched keys."""
    if len(record.complete) < 2 or len({name for row in record.complete for name in row.values}) < 2:
        return None
    settle_matplotlib(record.folder.home.cache)
    from optuna.visualization import plot_parallel_coordinate  # imports matplotlib

    figure = plot_parallel_coordinate(as_optuna_study(record.complete, record.loaded.space), target_name=title)
    figure.update_layout(title=None)
    figure.update_traces(line_width=2, opacity=0.8, selector={"mode": "lines"})
    lay_out(figure, x="", y="", height=460)
    figure.update_layout(plot_bgcolor="#e6ebf1")  # the worst trials are drawn nearly white
    figure.update_yaxes(visible=False)
    return figure


def draw_slices(record: StudyRecord, title: str) -> Any:
    """Each searched key against the value: complete trials, pruned ones, and SEE off as a line."""
    rows = [row for row in record.searched if row.result.best_value is not None]
    parameters = [p for p in record.loaded.space.parameters if any(p.name in row.values for row in rows)]
    if not parameters:
        return None
    across = min(_ACROSS, len(parameters))
    down = -(-len(parameters) // across)
    figure = make_subplots(
        rows=down, cols=across, shared_yaxes=True, horizontal_spacing=0.04, vertical_spacing=min(0.2, 0.5 / down)
    )
    for place, parameter in enumerate(parameters):
        where = {"row": place // across + 1, "col": place % across + 1}
        for status, name in (("pruned", "pruned (best until then)"), ("complete", "complete")):
            chosen = [row for row in rows if row.result.status == status and parameter.name in row.values]
            xs = [_coordinate(parameter, row) for row in chosen]
            figure.add_trace(_dots(chosen, xs, name, hollow=status == "pruned", legend=place == 0), **where)
        figure.update_xaxes(title_text=parameter.name, **_axis(parameter), **where)
    lay_out(figure, x=None, y=None, height=90 + 260 * down)
    figure.update_yaxes(title_text=title, col=1)
    if record.baseline:
        figure.add_hline(y=100 * (record.baseline.value or 0.0), line={"color": _ORANGE, "dash": "dash", "width": 1.5})
        figure.add_trace(_off_in_legend())
    return figure


def draw_curves(record: StudyRecord, title: str, grace_epochs: int | None) -> Any:
    """The objective of every trial by epoch, the best and SEE off on top. grace_epochs: before it nothing was judged."""
    searched = {row.lineage: row for row in record.searched}
    lineages = [name for name in (*searched, *record.out) if record.curves.get(name) and not _is_planned(name)]
    if not lineages:
        return None
    best = record.complete[0].lineage if record.complete else ""
    figure = go.Figure()
    for lineage in sorted(lineages, key=lambda name: name == best):
        status = searched[lineage].result.status if lineage in searched else "running"
        colour = _BLUE if status == "complete" else _GREY
        width = 3.0 if lineage == best else 1.0
        figure.add_trace(_curve(record, lineage, f"{lineage}, {status}", colour, width, legend=lineage == best))
    if record.baseline:
        figure.add_trace(_curve(record, record.baseline.lineage, "SEE off", _ORANGE, 3.0, dash="dash", legend=True))
    if grace_epochs is not None and grace_epochs < record.spec.train.epochs:
        figure.add_vline(x=grace_epochs, line={"color": _SOFT, "dash": "dot", "width": 1})
        figure.add_annotation(
            x=grace_epochs, y=0, yref="paper", text=" first judged", showarrow=False, xanchor="left", yanchor="bottom",
            font={"color": _SOFT, "size": 12},
        )  # fmt: skip
    lay_out(figure, x="epoch", y=title)
    figure.update_xaxes(**_whole_numbers(1, record.spec.train.epochs))
    return figure


def draw_overlaid_histories(records: Sequence[StudyRecord], title: str) -> Any:
    """The best so far of several studies, by trial."""
    figure = go.Figure()
    for record in records:
        complete = [row for row in record.searched if row.value is not None]
        steps = list(_best_so_far(complete, {row.lineage: place for place, row in enumerate(record.searched)}))
        figure.add_trace(
            go.Scatter(
                x=[place for place, _ in steps],
                y=[value for _, value in steps],
                name=record.spec.study,
                mode="lines+markers",
                line={"shape": "hv"},
            )
        )
    lay_out(figure, x="trial", y=title)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(**_whole_numbers(0, max(len(record.searched) for record in records)), rangemode="tozero")
    return figure


def _is_planned(lineage: str) -> bool:
    return lineage.startswith(("baseline", "rerank-", "final-"))


def _curve(
    record: StudyRecord, lineage: str, name: str, colour: str, width: float, *, legend: bool, dash: str = "solid"
) -> go.Scatter:
    curve = record.curves[lineage]
    epochs = sorted(curve)
    return go.Scatter(
        x=epochs,
        y=[100 * curve[epoch] for epoch in epochs],
        name=name,
        mode="lines" if len(epochs) > 1 else "markers",
        line={"color": colour, "width": width, "dash": dash},
        showlegend=legend,
        hovertemplate=f"{name}<br>epoch %{{x}}: %{{y:.1f}}<extra></extra>",
    )


def _dots(
    rows: Sequence[FinishedRow], xs: Sequence[float | str], name: str, *, hollow: bool = False, legend: bool = True
) -> go.Scatter:
    return go.Scatter(
        x=xs,
        y=[100 * (row.result.best_value or 0.0) for row in rows],
        name=name,
        mode="markers",
        marker={"color": _GREY if hollow else _BLUE, "size": 8, "symbol": "circle-open" if hollow else "circle"},
        text=[_hover(row) for row in rows],
        hovertemplate="%{text}<br>%{y:.1f}<extra></extra>",
        legendgroup=name,
        showlegend=legend and bool(rows),
    )


def _hover(row: FinishedRow) -> str:
    values = "<br>".join(f"{name} {setting(value)}" for name, value in row.values.items())
    return f"<b>{row.lineage}</b><br>{values}"


def _coordinate(parameter: Parameter, row: FinishedRow) -> float | str:
    value = row.values[parameter.name]
    return str(setting(value)) if isinstance(parameter.domain, Choice) or isinstance(value, str | bool) else value


def _axis(parameter: Parameter) -> dict[str, Any]:
    match parameter.domain:
        case Choice(options):
            labels = [str(setting(option)) for option in options]
            shown = [label if len(label) <= _LABEL_CHARACTERS else f"{label[: _LABEL_CHARACTERS - 1]}…" for label in labels]
            return {
                "type": "category", "categoryorder": "array", "categoryarray": labels, "tickvals": labels, "ticktext": shown,
                "range": [-0.5, len(labels) - 0.5],
            }  # fmt: skip
        case domain:
            return {"type": "log", "tickvals": _log_ticks(domain.low, domain.high)} if domain.log else {"type": "linear"}


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten inside the range; over many decades the powers alone."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= _DETAILED_DECADES else (1,)
    return [tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high]


def _whole_numbers(first: int, count: int) -> dict[str, Any]:
    """Ticks of an axis that counts: about ten of them, none between two whole numbers."""
    return {"tick0": first, "dtick": max(1, round(count / 10))}


def _add_off(figure: go.Figure, record: StudyRecord) -> None:
    if record.baseline:
        figure.add_hline(y=100 * (record.baseline.value or 0.0), line={"color": _ORANGE, "dash": "dash", "width": 1.5})
        figure.add_trace(_off_in_legend())


def _off_in_legend() -> go.Scatter:
    return go.Scatter(x=[None], y=[None], mode="lines", name="SEE off", line={"color": _ORANGE, "dash": "dash", "width": 1.5})


def lay_out(figure: go.Figure, *, x: str | None, y: str | None, height: int = 400) -> None:
    """One look for all: white ground, light grid, the legend above the drawing."""
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 60, "r": 24, "t": 44, "b": 54},
        font={"family": "system-ui, Segoe UI, Helvetica, Arial, sans-serif", "size": 13, "color": "#1d2733"},
        legend={"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        hovermode="closest",
    )
    figure.update_xaxes(automargin=True, **({} if x is None else {"title_text": x}))
    figure.update_yaxes(automargin=True, **({} if y is None else {"title_text": y}))
