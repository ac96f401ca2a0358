"""`see-tune ui`: the MLflow UI of a home folder, on loopback."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from see_tune.cli.options import HomeFolder


def ui(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="Say where this study is in the UI.")] = None,
    home: HomeFolder = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 5000,
) -> None:
    """Open the MLflow UI of a home folder on http://127.0.0.1:PORT; Ctrl-C ends it."""
    from see_tune.home import find_home
    from see_tune.studies import existing_study, frozen
    from see_tune.tracking.connection import ui_command

    at_home = find_home(home)
    command = ui_command(at_home, port=port)
    if study is not None:
        spec = frozen(existing_study(at_home, study)).spec
        print(f"{study}: experiment see-tune/{spec.dataset.name}, the run {study} and its children")
    print(f"MLflow on http://127.0.0.1:{port}  (Ctrl-C ends it)", flush=True)
    os.execvp(command[0], command)
