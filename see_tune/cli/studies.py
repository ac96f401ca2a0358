"""`see-tune list`, `status`, `stop` and `final`: studies that were begun, by name."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from see_tune.cli.options import Address, AsJson, ClusterAddress, HomeFolder, StudyName
from see_tune.errors import SeeTuneError, StudyError

if TYPE_CHECKING:
    from see_tune.status import Found, StudyStatus


def list_studies(home: HomeFolder = None, address: ClusterAddress = None, as_json: AsJson = False) -> int:
    """List the studies of a home, each with its best beside SEE off."""
    if address is not None:
        return ask_cluster(address, home, "list", *(["--json"] if as_json else []))
    from see_tune.home import find_home
    from see_tune.status import read_status
    from see_tune.studies import study_names

    at_home = find_home(home)
    if home is not None and not at_home.root.is_dir():
        raise StudyError(f"there is no home folder {at_home.root}; name the one that a study was run with, or leave --home out")
    found: list[StudyStatus] = []
    for name in study_names(at_home):
        try:
            found.append(read_status(at_home, name))
        except SeeTuneError as error:  # of an older version, or edited by hand: the others are listed all the same
            print(f"{name} cannot be read: {error}", file=sys.stderr)
    if as_json:
        print(json.dumps([dataclasses.asdict(status) for status in found], indent=2))
        return 0
    if not study_names(at_home):
        print(f"no study in {at_home.root}; begin one: see-tune run search_spaces/glyphs.yaml")
    width = max((len(status.study) for status in found), default=0)
    for status in found:
        trials = f"{status.finished}/{status.trials}"
        print(f"{status.study:<{width}}  {status.dataset:<8} {status.state:<11} {trials:>8}   {_best_text(status)}".rstrip())
    return 0


def status(name: StudyName, home: HomeFolder = None, address: ClusterAddress = None, as_json: AsJson = False) -> int:
    """Say how a study stands, also while it runs. Nothing of it is touched."""
    if address is not None:
        return ask_cluster(address, home, "status", name, *(["--json"] if as_json else []))
    from see_tune.home import find_home
    from see_tune.status import read_status

    found = read_status(find_home(home), name)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
        return 0
    for line in status_lines(found, now=time.time()):
        print(line)
    return 0


def stop(name: StudyName, home: HomeFolder = None, address: ClusterAddress = None) -> int:
    """End a running study gracefully. Its trials end their epoch and go back into the queue; returns when it has ended."""
    if address is not None:
        return ask_cluster(address, home, "stop", name)
    from see_tune.cluster import drop
    from see_tune.holding import ask_to_stop, holder_of, wait_until_free
    from see_tune.home import find_home
    from see_tune.studies import existing_study

    at_home = find_home(home)
    folder = existing_study(at_home, name)
    if (was_owed := drop(name, at_home)) and holder_of(folder) is None:
        print(f"{name} was not running; a head that comes back leaves it alone now")
        return 0
    holder = ask_to_stop(folder)
    print(f"{name} ({holder}) was asked to stop; its trials end their epoch first", flush=True)
    wait_until_free(folder, holder)
    command = f"see-tune submit {folder.spec_file}" if was_owed else at_home.command("run", str(folder.spec_file))
    print(f"{name} has stopped; it continues with: {command}")
    return 0


def ask_cluster(address: str, home: Path | None, *arguments: str) -> int:
    """Have the command answered on the cluster, over the home there; returns its exit code."""
    from see_tune.cluster import Cluster

    if home is not None:
        raise typer.BadParameter("a cluster has its own home; leave one of --home and --address out", param_hint="--home")
    output, code = Cluster(address).ask(arguments)
    print(output, end="")
    return code


def final(name: StudyName, home: HomeFolder = None, address: Address = None, as_json: AsJson = False) -> int:
    """Run the final phase of a study that was searched. The best is retrained, meets the test classes once and is registered."""
    from see_tune.cli.run import show
    from see_tune.home import find_home
    from see_tune.studies import begun_study, finished_note, settled

    at_home = find_home(home)
    loaded = begun_study(at_home, name)
    stored = settled(loaded, at_home, "final", extend=False) if loaded.spec.final else None
    if stored is not None:
        print(finished_note(stored), file=sys.stderr if as_json else sys.stdout)
        return show(stored, as_json=as_json)
    from see_tune.cli.progress import choose_watcher
    from see_tune.study import finish_study

    return show(finish_study(name, at_home, address=address, watcher=choose_watcher(as_json)), as_json=as_json)


def status_lines(status: StudyStatus, now: float) -> list[str]:
    """A study's status in at most 80 columns. now: Unix time in seconds."""
    from see_tune.cli.show import SEARCH_ENDED, duration
    from see_tune.report.numbers import percent

    holder = status.holder
    doing = f"{status.state} for {duration(now - holder.started_at)} ({holder})" if holder else status.state
    lines = [
        f"{status.study}  {status.dataset}  {status.protocol}  {doing}",
        f"search   {status.finished}/{status.trials}  complete {status.complete}  pruned {status.pruned}  failed {status.failed}",
        *([f"         {SEARCH_ENDED[status.search_ended]}"] if status.search_ended else []),
        f"best     {_best_text(status)}",
    ]
    if status.waiting:
        lines.append(f"cut      {status.waiting}, going on from their checkpoints with the next start")
    if status.planned:
        lines.append(f"beside   {status.planned} of baseline, re-ranking and final runs finished")
    for label, trial in zip(["running", *[""] * len(status.running)], status.running, strict=False):
        reached = f"up to epoch {trial.last_epoch}"
        if trial.value is not None:
            reached = f"epoch {trial.epoch}/{trial.last_epoch}  {percent(trial.value)}"
        lines.append(f"{label:<8} {trial.lineage} {reached}")
    lines.append(
        f"disk     {_bytes(status.disk_bytes)}, {_bytes(status.checkpoint_bytes)} of it in checkpoints   {status.folder}"
    )
    return lines


def _best_text(status: StudyStatus) -> str:
    from see_tune.report.numbers import describe_values

    values = f"   {describe_values(status.best.values)}" if status.best else ""
    return f"{_value(status.best, 'none yet')}   SEE off {_value(status.off, 'not yet measured', named=False)}{values}"


def _value(found: Found | None, absent: str, *, named: bool = True) -> str:
    from see_tune.report.numbers import percent

    if found is None:
        return absent
    return f"{found.lineage} {percent(found.value)}" if named else percent(found.value)


def _bytes(count: int) -> str:
    """``3.1M``, ``12G``."""
    size = float(count)
    for unit in ("B", "K", "M"):
        if size < 1024:
            return f"{size:.3g}{unit}"
        size /= 1024
    return f"{size:.3g}G"
