"""`see-tune submit`, `logs`, and `work`: a study that runs on a cluster, and goes on when its head comes back."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from see_tune.cli.options import HomeFolder, Name, Overrides, Trials, Until
from see_tune.cli.run import overridden, run

_HEAD_STARTS_S = 300.0
_INTERRUPTED = 130
_PAUSE_S = 30.0  # a cluster that has just come back may lack what a study had when it was accepted: workers, a mount

JobsAddress = Annotated[str, typer.Option("--address", metavar="URL", help="The cluster's jobs API.")]
_LOCAL = "http://127.0.0.1:8265"


def submit(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A study's YAML, e.g. search_spaces/glyphs.yaml.", show_default=False)
    ] = None,
    address: JobsAddress = _LOCAL,
    trials: Trials = None,
    name: Name = None,
    set_: Overrides = None,
    until: Until = "final",
    fresh: Annotated[bool, typer.Option("--fresh", help="Set an earlier study of this name aside, and begin anew.")] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Instead of FILE: every study of the home that the cluster was given and owes.")
    ] = False,
    home: HomeFolder = None,
) -> None:
    """Run a study on a cluster as a Ray job. The terminal is free at once."""
    from see_tune.cluster import Cluster, Order
    from see_tune.spec.load import dump_study, load_study

    if unfinished == (file is not None):
        raise typer.BadParameter("give a FILE, or --unfinished", param_hint="FILE")
    if unfinished:
        _submit_unfinished(address, home)
        return
    assert file is not None
    loaded = load_study(file, overrides=overridden(set_, name, trials))
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    study = loaded.spec.study
    identity = Cluster(address).submit(Order(study, dump_study(loaded.spec), until, fresh))
    print(f"{study} was handed to {address} as job {identity}; whether it can start is checked there, and said in its log:")
    print(f"  see-tune logs {study} --follow --address {address}")
    print(f"  see-tune status {study} --address {address}")
    print(f"  see-tune stop {study} --address {address}")


def _submit_unfinished(address: str, home: Path | None) -> None:
    from see_tune.cluster import Cluster, unfinished
    from see_tune.errors import StudyError
    from see_tune.home import find_home

    orders = unfinished(find_home(home))
    cluster = Cluster(address, patience_s=_HEAD_STARTS_S) if orders else None
    for order in orders:
        assert cluster is not None
        try:
            print(f"{order.study} goes on as job {cluster.submit(order)}", flush=True)
        except StudyError as error:  # it runs already: what was asked is done
            print(error, file=sys.stderr)


def logs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A study that was submitted.", show_default=False)],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends, and end with its exit code.")] = False,
    address: JobsAddress = _LOCAL,
) -> int:
    """Print what a submitted study says."""
    from see_tune.cluster import Cluster

    cluster = Cluster(address)
    if follow:
        return cluster.follow(name, lambda text: print(text, end="", flush=True))
    print(cluster.log(name), end="")
    return 0


def work(home: HomeFolder = None) -> int:
    """What a submitted job runs: the study of $SEE_TUNE_ORDER on this cluster, kept in the home until it has ended."""
    from see_tune.cluster import ORDER_VARIABLE, Order, drop, is_owed, keep
    from see_tune.errors import SeeTuneError, SpecError, StorageAwayError, UserError
    from see_tune.home import find_home

    if not (text := os.environ.get(ORDER_VARIABLE)):
        raise SpecError(f"{ORDER_VARIABLE} is not set: this command is what `see-tune submit FILE` runs on a cluster; use that")
    order, at_home = Order.from_json(text), find_home(home)
    file, fresh = keep(order, at_home), order.fresh
    while True:
        try:
            code = run(file, home=at_home.root, until=order.until, fresh=fresh, address="auto")
        except SeeTuneError as error:
            may_pass = isinstance(error, StorageAwayError) or (order.again and isinstance(error, UserError))
            if not may_pass:
                drop(order.study, at_home)
                raise
            print(f"see-tune: {error}\nsee-tune: trying again in {_PAUSE_S:.0f} s", file=sys.stderr, flush=True)
            time.sleep(_PAUSE_S)
            if not is_owed(order.study, at_home):  # stopped meanwhile
                raise
            fresh = False
        else:
            if code != _INTERRUPTED:  # stopped by hand the order is gone already; with its head, it goes on
                drop(order.study, at_home)
            return code
