"""`see-tune ui`: the MLflow UI of a home folder, on loopback."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Annotated, NoReturn

import typer

from see_tune.cli.options import HomeFolder


def ui(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="Say where this study is in the UI.")] = None,
    home: HomeFolder = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 5000,
) -> None:
    """Open the MLflow UI of a home folder on http://127.0.0.1:PORT; Ctrl-C ends it."""
    from see_tune.home import find_home
    from see_tune.spec.load import trial_values
    from see_tune.studies import existing_study, frozen
    from see_tune.tracking.connection import LOCAL
    from see_tune.tracking.ui import Runs, serve_ui

    at_home, uri, begin = find_home(home), LOCAL, None
    if study is not None:
        spec = frozen(existing_study(at_home, study)).spec
        objective = trial_values(spec).objective_metric.replace("/", "_")
        uri, begin = spec.tracking.uri, Runs(f"see-tune/{spec.dataset.name}", f"best/{objective}")

    def ready(address: str) -> None:
        if begin is not None:
            print(f"{study}: experiment {begin.experiment}, the run {study} and those whose source it is; best trial first")
        print(f"{address}\nCtrl-C ends it", flush=True)

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        serve_ui(at_home, uri, port=port, ready=ready, begin=begin)
    except KeyboardInterrupt:
        print("ended")


def _interrupt(signum: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
