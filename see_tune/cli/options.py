"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A study's YAML, e.g. search_spaces/glyphs.yaml.", show_default=False)
]
HomeFolder = Annotated[
    Path | None,
    typer.Option("--home", help="Folder for everything written; default SEE_TUNE_HOME, then ./runs.", show_default=False),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key of the file; repeatable.", show_default=False),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Run the trials on this Ray cluster: auto (RAY_ADDRESS, or the Ray on this machine) or HOST:PORT of its head. "
        "Default: this machine alone, whatever RAY_ADDRESS says.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
ClusterAddress = Annotated[
    str | None,
    typer.Option("--address", metavar="URL", help="Ask the cluster whose jobs API is there.", show_default=False),
]
