"""A study's report: ``report.html`` and ``report.md`` in its folder, from what is stored of it.

    read_record -> study_sections (+ gallery) -> render_html, render_markdown

It can be made at any time: before the first trial has ended, while the study runs, after every trial has failed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from see_tune.home import Home
from see_tune.report.document import Page, Section
from see_tune.report.gallery import gallery_section
from see_tune.report.html import render_html
from see_tune.report.markdown import render_markdown
from see_tune.report.record import StudyRecord, read_record
from see_tune.report.sections import study_sections


def write_report(name: str, home: Home, *, gallery: bool = True) -> Path:
    """Write the report of the study `name`; returns the HTML file, beside which lies the Markdown one.

    gallery: embed the test classes once more with the first final model, where there is one, and show what it finds.

    Raises:
        StudyError: there is no such study.
    """
    record = read_record(name, home)
    page = study_page(record, gallery_section(record, home) if gallery else None)
    markdown_file = record.folder.report_file.with_suffix(".md")
    for file, text in ((record.folder.report_file, render_html(page)), (markdown_file, render_markdown(page))):
        draft = file.with_suffix(f"{file.suffix}.part")
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    return record.folder.report_file


def study_page(record: StudyRecord, gallery: Section | None = None) -> Page:
    """The report of a record, made now; the gallery stands after the search."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    subtitle = f"see-tune report, made {made} from {record.folder.root}"
    sections = study_sections(record)
    if gallery is not None:
        after = next(place for place, section in enumerate(sections) if section.title == "The search") + 1
        sections.insert(after, gallery)
    return Page(record.spec.study, subtitle, sections)
