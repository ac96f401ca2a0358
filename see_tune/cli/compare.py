"""`see-tune compare STUDY STUDY...`: the tables of several studies, for a paper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from see_tune.cli.options import HomeFolder, path_option


def compare(
    studies: Annotated[list[str], typer.Argument(metavar="STUDY", help="Names from `see-tune list`.", show_default=False)],
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX (booktabs) instead of Markdown.")] = False,
    out: Annotated[
        Path | None,
        path_option("--out", "Write compare.md, .tex and .html here instead."),
    ] = None,
    home: HomeFolder = None,
) -> None:
    """Print the tables of several studies side by side. A warning says where their numbers do not mean the same."""
    from see_tune.home import find_home
    from see_tune.report.compare import compare_studies

    comparison = compare_studies(studies, find_home(home))
    if out is not None:
        for file in comparison.write(out):
            print(file)
    elif latex:
        print(comparison.latex(), end="")
    else:
        print(comparison.markdown(), end="")
    for warning in comparison.warnings:
        print(f"warning: {warning}", file=sys.stderr)
