"""A page as one HTML file: no network, plotly.js inside and once.

The content security policy forbids every request, so that a report opened from an e-mail tells nobody that it was. All text
is escaped: a failure's cause may hold anything.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape

from plotly.offline import get_plotlyjs

from see_tune.report.document import Block, Code, Figure, Lines, Page, Paragraph, Picture, Section, Table

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
# "sendChartToCloud" would upload a figure's data at a click.
_PLOT_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["sendChartToCloud", "lasso2d", "select2d", "autoScale2d"],
}
_NUMBER = re.compile(r"[-+±\d.,\s%\[\]]*\d[-+±\d.,\s%\[\]]*")
_WRAPPED_CHARACTERS = 48
_STYLE = """
:root { color-scheme: light; --ink: #1d2733; --soft: #5b6775; --line: #dfe4ea; --accent: #1f5fa8; --ground: #f5f7f9 }
* { box-sizing: border-box }
body { margin: 0; color: var(--ink); background: #fff; font: 16px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
main, header { max-width: 68rem; margin: 0 auto; padding: 0 1.5rem }
header { padding-top: 2.5rem }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 }
h2 { font-size: 1.3rem; margin: 3rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line) }
p { margin: .75rem 0; max-width: 52rem }
.subtitle, .caption, figcaption { color: var(--soft); font-size: .9rem }
nav { margin: 1.25rem 0 0; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; font-size: .9rem }
a { color: var(--accent); text-decoration: none }
a:hover { text-decoration: underline }
ul.lines { list-style: none; margin: 0; padding: 1rem 1.25rem; background: var(--ground); border-left: 4px solid var(--accent) }
ul.lines li + li { margin-top: .35rem }
.warning { background: #fff6df; border-left: 4px solid #d99a00; padding: .6rem 1rem }
.scroll { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; line-height: 1.35 }
.caption { margin: 1.25rem 0 -.5rem }
th, td { padding: .4rem .9rem .4rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top }
td { white-space: nowrap }
td.text { white-space: normal; min-width: 20rem; overflow-wrap: anywhere }
th { font-weight: 600; border-bottom-color: var(--soft) }
.number { text-align: right }
tr.strong td { font-weight: 650 }
figure { margin: 1.25rem 0 }
figure img { max-width: 100%; image-rendering: auto; border: 1px solid var(--line) }
figcaption { max-width: 52rem; margin-top: .25rem }
pre { background: var(--ground); padding: .9rem 1.1rem; overflow-x: auto; font-size: .85rem; line-height: 1.45 }
details { margin: .75rem 0 }
summary { cursor: pointer; color: var(--accent) }
footer { height: 4rem }
@media print { nav { display: none } h2 { break-after: avoid } figure, tr { break-inside: avoid } }
"""


def render_html(page: Page) -> str:
    """The text of report.html."""
    links = "".join(f'<a href="#s{number}">{escape(section.title)}</a>' for number, section in enumerate(page.sections))
    sections = "".join(_section(section, number) for number, section in enumerate(page.sections))
    has_figure = any(isinstance(block, Figure) for section in page.sections for block in section.blocks)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(page.title)}</title>\n<style>{_STYLE}</style>\n'
        + (f"<script>{get_plotlyjs()}</script>\n" if has_figure else "")
        + f'</head>\n<body>\n<header><h1>{escape(page.title)}</h1><p class="subtitle">{escape(page.subtitle)}</p>'
        f"<nav>{links}</nav></header>\n<main>\n{sections}</main>\n<footer></footer>\n</body>\n</html>\n"
    )


def _section(section: Section, number: int) -> str:
    blocks = "\n".join(_block(block, f"f{number}-{place}") for place, block in enumerate(section.blocks))
    return f'<section id="s{number}">\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>\n'


def _block(block: Block, name: str) -> str:
    match block:
        case Paragraph(text, is_warning):
            mark = ' class="warning"' if is_warning else ""
            return f"<p{mark}>{escape(text)}</p>"
        case Lines(items):
            return '<ul class="lines">' + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
        case Table():
            return _table(block)
        case Code(text, summary):
            code = f"<pre>{escape(text.rstrip())}</pre>"
            return f"<details><summary>{escape(summary)}</summary>{code}</details>" if summary else code
        case Figure(_, plot, caption):
            drawn = plot.to_html(full_html=False, include_plotlyjs=False, config=_PLOT_CONFIG, div_id=name)
            return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"
        case Picture(_, png, caption):
            source = base64.b64encode(png).decode("ascii")
            shown = f'<img alt="{escape(caption)}" src="data:image/png;base64,{source}">'
            return f"<figure>{shown}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(table: Table) -> str:
    kinds = [_kind([row[column] for row in table.rows]) for column in range(len(table.header))]
    head = _row(table.header, kinds, "th")
    body = "".join(_row(row, kinds, "td", strong=number in table.strong) for number, row in enumerate(table.rows))
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    return f'{caption}<div class="scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _row(cells: Sequence[str], kinds: Sequence[str], tag: str, *, strong: bool = False) -> str:
    row = "".join(f'<{tag} class="{kind}">{escape(text)}</{tag}>' for text, kind in zip(cells, kinds, strict=True))
    return f'<tr class="strong">{row}</tr>' if strong else f"<tr>{row}</tr>"


def _kind(cells: Sequence[str]) -> str:
    """How a column is set: numbers flush right, sentences wrapped, words as they are."""
    if any(cells) and all(cell == "" or _NUMBER.fullmatch(cell) for cell in cells):
        return "number"
    return "text" if any(len(cell) > _WRAPPED_CHARACTERS for cell in cells) else "word"
