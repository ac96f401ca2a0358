"""`see-tune ui`: the MLflow UI of a home folder, on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from see_tune.cli.options import HomeFolder


def ui(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="Say where this study is in the UI.")] = None,
    home: HomeFolder = None,
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Where it is served.")] = 5000,
) -> None:
    """Serve the MLflow UI of a home folder. It is on http://127.0.0.1:PORT; Ctrl-C ends it."""
    from see_tune.addresses import AUTO
    from see_tune.home import find_home
    from see_tune.spec.load import trial_values
    from see_tune.studies import existing_study, frozen
    from see_tune.tracking.connection import EXPERIMENT_PREFIX
    from see_tune.tracking.ui import serve_ui

    at_home, uri, only, best = find_home(home), AUTO, None, "best/val_recall_at_1"
    if study is not None:
        spec = frozen(existing_study(at_home, study)).spec
        uri, only = spec.tracking.uri, f"{EXPERIMENT_PREFIX}{spec.dataset.called}"
        best = f"best/{trial_values(spec).objective_metric.replace('/', '_')}"
        print(f"{study}: the run {study}, and those whose source it is; the best trial first")

    def ready(addresses: Mapping[str, str]) -> None:
        for experiment, address in addresses.items():
            if only in (None, experiment):
                print(f"{experiment}   {address}")
        print("MLflow is running. Ctrl-C ends it", flush=True)

    try:
        serve_ui(at_home, uri, port=port, ready=ready, best=best)
    except KeyboardInterrupt:
        print("ended")
