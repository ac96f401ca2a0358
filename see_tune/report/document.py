"""A page as data: sections of paragraphs, tables, figures and pictures, which html.py and markdown.py write down.

What a report says is decided once (sections.py); how it looks is a matter of the two writers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Paragraph:
    """A sentence or more; `is_warning` sets it off."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class Lines:
    """Short facts, one a line."""

    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Cells as text. strong: numbers of the rows that the reader looks for first."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    strong: Sequence[int] = ()


@dataclass(frozen=True)
class Code:
    """Text to be copied. summary: with one, the text is folded away under it."""

    text: str
    summary: str = ""


@dataclass(frozen=True)
class Figure:
    """A plotly figure and what there is to see in it. name: of its file."""

    name: str
    plot: Any
    caption: str


@dataclass(frozen=True)
class Picture:
    """A PNG and what there is to see in it. name: of its file."""

    name: str
    png: bytes
    caption: str


Block = Paragraph | Lines | Table | Code | Figure | Picture


@dataclass(frozen=True)
class Section:
    """One heading and what is below it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A whole report. subtitle: when and from what it was made."""

    title: str
    subtitle: str
    sections: Sequence[Section]
