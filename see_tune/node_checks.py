"""What must hold on a node of a cluster before trials are sent there.

    check_nodes   in the driver, before the first trial: sends `look_around` to each node that takes trials, and compares what
                  comes back; what is wrong is said in one list, and nothing starts
    Gate          in the driver, while trials run: the same for each node that joins; one with something wrong gets no trials
    look_around   on the node: sees the same folders, the same pictures, the same versions

A trial opens the dataset and the study's folder on its own node, under the paths that the driver has. Where a node does not
see them, each of its trials would fail, at the first batch or at the first checkpoint.
"""

from __future__ import annotations

import platform
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from see_tune.checks import read_dataset, unwritable
from see_tune.data.pictures import open_rgb
from see_tune.errors import SeeTuneError, UserError
from see_tune.home import Home
from see_tune.machine import check_faiss
from see_tune.search.nodes import Node, Question, Watch, run_on_each
from see_tune.spec.models import TrialSpec

_TIMEOUT_S = 120.0  # Python, torch and a dataset's lists over a slow network
_PICTURES = 3


@dataclass(frozen=True)
class NodeView:
    """What a node found. fingerprint: of the dataset as it is read there; None where it cannot be."""

    versions: Mapping[str, str]
    fingerprint: str | None
    problems: tuple[str, ...]


def check_nodes(nodes: Sequence[Node], trial: TrialSpec, home: Home) -> Iterator[UserError]:
    """What is wrong on any node that is to run trials, a line each; and that there is none."""
    able = [node for node in nodes if node.cpus]
    if not able:
        hosts = ", ".join(f"{node.host}: {node.cpus} CPU" for node in nodes)
        yield UserError(f"no node of the cluster takes trials ({hosts}); start a worker: ray start --address=HOST:PORT")
        return
    mark = _make_mark(home)
    try:
        found = run_on_each(able, look_around, trial.model_dump_json(by_alias=True), str(mark), timeout_s=_TIMEOUT_S)
        written = {path.name for path in mark.iterdir()}
    finally:
        shutil.rmtree(mark)
    here = see(trial, home)
    for node, view in found.items():
        for problem in _compared(view, here, written=node.id in written):
            yield UserError(f"node {node.host}: {problem}")


def _make_mark(home: Home) -> Path:
    """A folder that whoever shares this home sees, and writes his name into."""
    mark = home.root / f"seen-by-{secrets.token_hex(4)}"
    mark.mkdir(parents=True)
    return mark


@dataclass(frozen=True)
class _Look:
    mark: Path
    question: Question


class Gate:
    """The nodes of a cluster that a study's trials may go to while it runs: those that were checked, and those that join.

    A node that joins is looked at meanwhile, and nothing waits for it. A node that was mended and started again is another one.

    admitted: ids of the nodes that may have trials. unfit: those that joined and may not, each with what is wrong.
    """

    def __init__(self, checked: Sequence[Node], trial: TrialSpec, home: Home, note: Callable[[str], None]) -> None:
        """note: told of each node that is turned away."""
        self._watch = Watch()
        self._trial, self._home, self._note = trial, home, note
        self._looks: dict[Node, _Look] = {}
        self.admitted = {node.id for node in checked}
        self.unfit: dict[Node, str] = {}

    def nodes(self) -> tuple[Node, ...]:
        """The admitted nodes that the cluster has, as of at most two seconds ago; sends for, and takes in, what is due."""
        alive = self._watch.nodes()
        for node in alive:
            if node.cpus and node.id not in self.admitted and node not in self._looks and node not in self.unfit:
                self._send(node)
        for node in [node for node, look in self._looks.items() if look.question.is_answered()]:
            self._judge(node, self._looks.pop(node), is_there=node in alive)
        return tuple(node for node in alive if node.id in self.admitted)

    def _send(self, node: Node) -> None:
        mark, trial = _make_mark(self._home), self._trial.model_dump_json(by_alias=True)
        self._looks[node] = _Look(mark, Question(node, look_around, trial, str(mark), timeout_s=_TIMEOUT_S))

    def _judge(self, node: Node, look: _Look, *, is_there: bool) -> None:
        view, written = look.question.wait(), (look.mark / node.id).exists()
        shutil.rmtree(look.mark)
        problems = list(_compared(view, self._here, written=written))
        if not problems:
            self.admitted.add(node.id)
            return
        self.unfit[node] = "; ".join(problems)
        if is_there:
            self._note(
                f"node {node.host} joined and gets no trials: {self.unfit[node]}. Start the node again when that is mended"
            )

    def close(self) -> None:
        """Leave nothing behind of looks that are still out."""
        for look in self._looks.values():
            shutil.rmtree(look.mark)

    @cached_property
    def _here(self) -> NodeView:
        return see(self._trial, self._home)


def look_around(node: Node, trial: str, mark: str) -> NodeView:
    """On a node. mark: a folder inside the home that the driver has just made."""
    folder = Path(mark)
    if not folder.is_dir():
        told = f"does not see the home folder {folder.parent} of the driver; mount one shared folder there on every node"
        return NodeView(_versions(), None, (told,))
    home = Home(folder.parent)
    found = see(TrialSpec.model_validate_json(trial, by_alias=True, by_name=False), home)
    try:
        (folder / node.id).touch()
    except OSError as error:
        told = f"cannot write into the home folder {home.root} ({error.strerror}); mount it writable for the user Ray runs as"
        return NodeView(found.versions, found.fingerprint, (*found.problems, told))
    return found


def see(trial: TrialSpec, home: Home) -> NodeView:
    """The machine that this runs on, as a trial would find it."""
    problems: list[str] = []
    fingerprint: list[str] = []

    def look_at_pictures() -> None:
        table = read_dataset(trial.model_copy(update={"dataset": trial.dataset.model_copy(update={"on_corrupt": "fail"})}), home)
        fingerprint.append(table.fingerprint())
        if table.pixels is None:
            for row in np.linspace(0, len(table) - 1, _PICTURES, dtype=int).tolist():
                open_rgb(table.file(row))

    for check in (check_faiss, look_at_pictures, lambda: _raised(unwritable(home.root))):
        problems += _told(check)
    return NodeView(_versions(), next(iter(fingerprint), None), tuple(problems))


def _raised(error: UserError | None) -> None:
    if error is not None:
        raise error


def _told(check: Callable[[], None]) -> list[str]:
    try:
        check()
    except SeeTuneError as error:
        return [str(error)]
    return []


def _versions() -> dict[str, str]:
    return {"Python": platform.python_version(), **{name: version(name) for name in ("see-tune", "torch", "ray")}}


def _compared(view: Any, here: NodeView, *, written: bool) -> Iterator[str]:
    """view: what `look_around` returned, or what it raised."""
    if not isinstance(view, NodeView):
        told = " ".join(str(view).split())[-300:]
        yield f"could not be looked at ({type(view).__name__}: {told}); give it the image or the packages of the driver"
        return
    yield from view.problems
    for name, own in here.versions.items():
        if view.versions[name] != own:
            yield f"has {name} {view.versions[name]} and the driver {own}; install the same there"
    if None not in (view.fingerprint, here.fingerprint) and view.fingerprint != here.fingerprint:
        yield "has other pictures, labels or splits under the dataset's path than the driver; mount one folder on every node"
    if not view.problems and not written:
        yield "has a home folder of its own under the driver's path; mount one shared folder there on every node"
