"""Text is text: nothing that a report is given becomes markup."""

from __future__ import annotations

from see_tune.report.document import Code, Lines, Page, Paragraph, Picture, Section, Table
from see_tune.report.html import render_html
from see_tune.report.markdown import markdown_table, render_markdown

EVIL = "<img src=x onerror=alert(1)> & \"quoted\" 'too' | `code` *bold*"


def page() -> Page:
    blocks = [Paragraph(EVIL), Lines([EVIL]), Table([EVIL], [[EVIL]], EVIL), Code(EVIL, EVIL), Picture("picture", b"png", EVIL)]
    return Page(EVIL, EVIL, [Section(EVIL, blocks)])


def test_no_text_becomes_an_element_of_the_page() -> None:
    html = render_html(page())
    assert "<img src=x" not in html
    assert html.count("&lt;img src=x") == 14
    assert "plotly" not in html  # not without a figure


def test_no_text_becomes_markup_in_markdown() -> None:
    text = render_markdown(page())
    assert text.count("\\<img src=x") == 10
    assert "| \\<img src=x onerror=alert(1)\\> & \"quoted\" 'too' \\| \\`code\\` \\*bold\\* |" in text


def test_columns_of_numbers_are_set_right_and_sentences_wrap() -> None:
    table = Table(["value", "gain", "word", "why"], [["83.2 ± 3.2", "+7.4 [+1.0, +13.7]", "t009", "a sentence " * 9]])
    html = render_html(Page("a", "b", [Section("c", [table])]))
    assert '<td class="number">83.2' in html
    assert '<td class="number">+7.4' in html
    assert '<td class="word">t009' in html
    assert '<td class="text">a sentence' in html


def test_a_line_break_does_not_end_a_row_of_a_table() -> None:
    assert markdown_table(["cause"], [["first\nsecond"]]).splitlines() == ["| cause |", "| --- |", "| first second |"]


def test_code_that_holds_a_fence_is_fenced_longer() -> None:
    text = render_markdown(Page("a", "b", [Section("c", [Code("```\nx\n```")])]))
    assert "````\n```\nx\n```\n````" in text
