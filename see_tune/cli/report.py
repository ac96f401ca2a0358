"""`see-tune report NAME`: the study as one HTML page and as Markdown, at any time."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from see_tune.cli.options import HomeFolder, StudyName


def report(
    name: StudyName,
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    gallery: Annotated[bool, typer.Option(help="Show what the final model finds; embeds the test classes once more.")] = True,
    home: HomeFolder = None,
) -> None:
    """Write a study's report as HTML and as Markdown. Also of one that runs or has failed."""
    from see_tune.home import find_home
    from see_tune.report.page import write_report

    written = write_report(name, find_home(home), gallery=gallery)
    print(f"{written.html}\n{written.markdown}")
    if open_:
        webbrowser.open(written.html.as_uri())
