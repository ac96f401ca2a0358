"""A page as Markdown: everything but the figures, of which only the captions stay."""

from __future__ import annotations

import re
from collections.abc import Sequence

from see_tune.report.document import Block, Code, Figure, Lines, Page, Paragraph, Picture, Table

# Underscores inside a word and brackets that no parenthesis follows mean nothing to Markdown, and people read the raw text too.
_SPECIAL = re.compile(r"([\\`*<>|]|(?<!\w)_|_(?!\w)|\](?=\())")


def render_markdown(page: Page) -> str:
    """The text of report.md."""
    parts = [f"# {_escaped(page.title)}", _escaped(page.subtitle)]
    for section in page.sections:
        parts += [f"## {_escaped(section.title)}", render_blocks(section.blocks)]
    return "\n\n".join(parts) + "\n"


def render_blocks(blocks: Sequence[Block]) -> str:
    """What stands below a heading."""
    return "\n\n".join(_block(block) for block in blocks)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table; cells are escaped, and a line break in one becomes a space."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell if cell == "---" else _cell(cell) for cell in line) + " |" for line in lines)


def _block(block: Block) -> str:
    match block:
        case Paragraph(text, is_warning):
            return f"**Note:** {_escaped(text)}" if is_warning else _escaped(text)
        case Lines(items):
            return "\n".join(f"- {_escaped(item)}" for item in items)
        case Table(header, rows, caption):
            return (f"{_escaped(caption)}\n\n" if caption else "") + markdown_table(header, rows)
        case Code(text, summary):
            fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
            return (f"{_escaped(summary)}:\n\n" if summary else "") + f"{fence}\n{text.rstrip()}\n{fence}"
        case Figure(_, _, caption) | Picture(_, _, caption):
            return f"*Figure, in report.html:* {_escaped(caption)}"


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
