"""`see-tune doctor`: what every machine is, and what would fail when a study runs on them.

Each machine looks at itself (`machine.look`), and they are compared with the one that asks: studies are handed over as
pickled functions and paths, so the same libraries must be everywhere and the same folders behind the same paths. MLflow and
the storage of the trials are asked from here, since the driver alone talks to them.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from see_tune.addresses import AUTO, LOCAL, STORAGE_VARIABLE, StorageAddress, find_tracking
from see_tune.errors import ClusterError, SeeTuneError
from see_tune.home import Home
from see_tune.machine import Folder, Machine, look

if TYPE_CHECKING:
    from see_tune.search.nodes import Node

_LOOKS_S = 120.0
_SKEW_S = 2.0
_ROOM_GIB = 2.0


@dataclass(frozen=True)
class Finding:
    """Something that is wrong. where: a machine's or a server's name. fatal: a study would fail by it."""

    where: str
    text: str
    fatal: bool


@dataclass(frozen=True)
class Patient:
    """One machine of the diagnosis. skew_s: its clock against this one, and how exactly that is known."""

    name: str
    machine: Machine
    skew_s: float
    within_s: float


@dataclass(frozen=True)
class Diagnosis:
    """patients: this machine, or the nodes of the cluster. servers: a line each on MLflow and the storage."""

    patients: tuple[Patient, ...]
    servers: Mapping[str, str]
    findings: tuple[Finding, ...]


def diagnose(home: Home, data: str | None, address: str | None) -> Diagnosis:
    """Look at this machine, or at each node of the cluster at `address` (``auto``, ``host:port``).

    Raises: StudyError where there is no such cluster. ClusterError where the home folder cannot be written.
    """
    with _marker(home) as marker:
        here = look(str(home.root), data, marker)
        patients: tuple[Patient, ...] = (Patient(here.host, here, 0.0, 0.0),)
        findings: list[Finding] = []
        if address is not None:
            patients, findings = _look_at_nodes(address, home, data, marker)
    for patient in patients:
        findings += compare(patient, here)
    servers = {"storage": _ask_storage(), "MLflow": _ask_mlflow(home)}
    findings += [Finding(name, text, fatal=True) for name, (text, well) in servers.items() if not well]
    return Diagnosis(patients, {name: text for name, (text, _) in servers.items()}, tuple(findings))


def compare(patient: Patient, reference: Machine) -> Iterator[Finding]:
    """What is wrong with a machine, on its own and beside the one that asks."""
    name, machine = patient.name, patient.machine
    if machine.python.rpartition(".")[0] != reference.python.rpartition(".")[0]:
        yield Finding(name, f"Python {machine.python}, and {reference.python} here", fatal=True)
    for library, here in reference.libraries.items():
        if (there := machine.libraries[library]) != here:
            yield Finding(name, f"{library} {there or 'absent'}, and {here or 'absent'} here; install the same image", fatal=True)
    if machine.faiss.count("faiss-") > 1:
        yield Finding(name, f"{machine.faiss} overwrite each other: uninstall both, then install one", fatal=True)
    if machine.devices and "faiss-gpu" not in machine.faiss:
        yield Finding(name, f"GPUs, and {machine.faiss}: evaluation searches on the CPU", fatal=False)
    for folder in filter(None, (machine.home, machine.data)):
        yield from _wrong_folder(name, folder)
    if abs(patient.skew_s) - patient.within_s > _SKEW_S:
        yield Finding(
            name, f"its clock is {patient.skew_s:+.1f} s off: curves of its trials would lie elsewhere in time", fatal=False
        )


def _wrong_folder(name: str, folder: Folder) -> Iterator[Finding]:
    if folder.problem:
        yield Finding(name, f"{folder.path}: {folder.problem}; mount it there, readable and writable as on the head", fatal=True)
    elif folder.marked is False:
        yield Finding(
            name, f"{folder.path} is another folder than here: checkpoints would be lost; mount one and the same", fatal=True
        )
    elif folder.write_mib_s is not None and folder.free_gib < _ROOM_GIB:
        yield Finding(name, f"{folder.path} has {folder.free_gib:.1f} GiB free; checkpoints want {_ROOM_GIB:.0f}", fatal=True)


@contextmanager
def _marker(home: Home) -> Iterator[str]:
    """A file in the home folder that every machine must see there; its name."""
    file = home.root / f".marker-{secrets.token_hex(4)}"
    try:
        home.root.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        raise ClusterError(
            f"the home folder {home.root} cannot be written ({error.strerror}); choose another with --home DIR or SEE_TUNE_HOME"
        ) from None
    try:
        yield file.name
    finally:
        file.unlink(missing_ok=True)


# The nodes of a cluster


def _look_at_nodes(address: str, home: Home, data: str | None, marker: str) -> tuple[tuple[Patient, ...], list[Finding]]:
    from see_tune.search.engine import join_cluster
    from see_tune.search.nodes import alive_nodes, run_on_each

    with join_cluster(address):
        nodes = alive_nodes()
        looks = run_on_each(nodes, _look, str(home.root), data, marker, timeout_s=_LOOKS_S)
        begun = time.time()
        clocks = run_on_each(nodes, _clock, timeout_s=_LOOKS_S)  # by workers that are up already: the answers come at once
        ended = time.time()
    middle, within = (begun + ended) / 2, (ended - begun) / 2
    patients, findings = list[Patient](), list[Finding]()
    for node, found in looks.items():
        name = f"{node.host} {node.id[:6]}"
        if isinstance(found, Machine):
            clock = clocks[node] if isinstance(clocks[node], float) else middle
            patients.append(Patient(name, found, clock - middle, within))
        else:
            findings.append(Finding(name, f"could not look at itself: {type(found).__name__}: {found}", fatal=True))
    return tuple(patients), findings


def _look(node: Node, home: str, data: str | None, marker: str) -> Machine:
    return look(home, data, marker)


def _clock(node: Node) -> float:
    return time.time()


# The servers, which the driver alone talks to


def _ask_storage() -> tuple[str, bool]:
    """What there is to say of SEE_TUNE_STORAGE, and whether it is well."""
    from see_tune.search.storage import reach_storage

    kind = os.environ.get(STORAGE_VARIABLE) or LOCAL
    try:
        if "://" in kind:
            reach_storage(StorageAddress(kind, "", begun=False))
    except SeeTuneError as error:
        return str(error), False
    return f"{kind}, reached" if "://" in kind else f"{kind}, in each study's folder", True


def _ask_mlflow(home: Home) -> tuple[str, bool]:
    """What there is to say of MLFLOW_TRACKING_URI, and whether it is well."""
    from see_tune.tracking.connection import answers

    try:
        uri = find_tracking(AUTO)
        if uri == LOCAL:
            return f"{LOCAL}, a file of the home folder", True
        return f"{uri}, {answers(home, uri)}", True
    except SeeTuneError as error:
        return str(error), False
