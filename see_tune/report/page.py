"""A study's report: ``report.html``, ``report.md`` and ``figures/`` in its folder, from what is stored of it.

    read_record -> study_sections (+ gallery) -> render_html, render_markdown

A figure's file is plotly's JSON (``plotly.io.read_json``), a sheet of the gallery a PNG. A report can be made at any time:
before the first trial has ended, while the study runs, after every trial has failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from see_tune.home import Home
from see_tune.report.document import Figure, Page, Picture, Section
from see_tune.report.gallery import gallery_section
from see_tune.report.html import render_html
from see_tune.report.markdown import render_blocks, render_markdown
from see_tune.report.record import StudyRecord, read_record
from see_tune.report.sections import study_sections


@dataclass(frozen=True)
class Report:
    """A report that was written. figures: a folder. answer: its first five lines, as Markdown."""

    html: Path
    markdown: Path
    figures: Path
    answer: str


def write_report(name: str, home: Home, *, gallery: bool = True) -> Report:
    """Write the report of the study `name`.

    gallery: embed the test classes once more with the first final model, where there is one, and show what it finds.

    Raises:
        StudyError: there is no such study.
    """
    record = read_record(name, home)
    page = study_page(record, gallery_section(record, home) if gallery else None)
    html, figures = record.folder.report_file, record.folder.figures
    markdown = html.with_suffix(".md")
    _write_whole(html, render_html(page).encode())
    _write_whole(markdown, render_markdown(page).encode())
    _write_figures(page, figures)
    return Report(html, markdown, figures, render_blocks(page.sections[0].blocks))


def _write_figures(page: Page, folder: Path) -> None:
    """One file a figure or picture of the page; what an earlier report drew and this one does not goes."""
    folder.mkdir(exist_ok=True)
    contents: dict[str, bytes] = {}
    for block in (block for section in page.sections for block in section.blocks):
        match block:
            case Figure(name, plot, _):
                contents[f"{name}.json"] = plot.to_json().encode()
            case Picture(name, png, _):
                contents[f"{name}.png"] = png
    for file in folder.iterdir():
        if file.name not in contents:
            file.unlink()
    for name, content in contents.items():
        _write_whole(folder / name, content)


def _write_whole(file: Path, content: bytes) -> None:
    """A reader finds the file that was there before, or all of the new one."""
    draft = file.with_name(f"{file.name}.part")
    draft.write_bytes(content)
    draft.replace(file)


def study_page(record: StudyRecord, gallery: Section | None = None) -> Page:
    """The report of a record, made now; the gallery stands after the search."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    subtitle = f"see-tune report, made {made} from {record.folder.root}"
    sections = study_sections(record)
    if gallery is not None:
        after = next(place for place, section in enumerate(sections) if section.title == "The search") + 1
        sections.insert(after, gallery)
    return Page(record.spec.study, subtitle, sections)
