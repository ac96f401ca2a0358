"""`see-tune doctor`: every machine beside the one that asks, and what would fail."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from see_tune.cli.options import AsJson, HomeFolder
from see_tune.cli.studies import ask_cluster
from see_tune.wording import counted

if TYPE_CHECKING:
    from see_tune.doctor import Diagnosis, Patient
    from see_tune.machine import Folder

Whom = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Each node of a cluster: auto or HOST:PORT of its head from inside, the URL of its jobs API from outside. "
        "Default: this machine.",
        show_default=False,
    ),
]


def doctor(address: Whom = None, home: HomeFolder = None, as_json: AsJson = False) -> int:
    """Look at the machines and servers that a study would use. Versions, devices, folders, clocks; exit 1 where one
    would fail."""
    if address is not None and "://" in address:
        return ask_cluster(address, home, "doctor", "--address", "auto", *(["--json"] if as_json else []))
    from see_tune.doctor import diagnose
    from see_tune.home import find_home

    found = diagnose(find_home(home), os.environ.get("SEE_TUNE_DATA"), address)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
    else:
        print("\n".join(diagnosis_lines(found)))
    return int(any(finding.fatal for finding in found.findings))


def diagnosis_lines(found: Diagnosis) -> list[str]:
    """The diagnosis as text: what is, then what is wrong."""
    lines = [line for patient in found.patients for line in _machine_lines(patient)]
    lines += [f"{name:<8} {text}" for name, text in found.servers.items()]
    for finding in found.findings:
        lines.append(f"{'ERROR' if finding.fatal else 'warning'}  {finding.where}: {finding.text}")
    return [*lines, "a study would fail here" if any(finding.fatal for finding in found.findings) else "ready"]


def _machine_lines(patient: Patient) -> list[str]:
    machine = patient.machine
    devices = [f"{device.name}, {device.memory_gib:.0f} GiB, {device.used_gib:.1f} taken" for device in machine.devices]
    libraries = ", ".join(f"{name} {there}" for name, there in machine.libraries.items() if there)
    lines = [
        f"{patient.name}  {counted(machine.cpus, 'core')}, {machine.memory_gib:.0f} GiB   clock {patient.skew_s:+.1f} s "
        f"+-{patient.within_s:.1f}",
        f"  Python {machine.python}, {libraries}",
        f"  faiss: {machine.faiss}   driver: {machine.driver or 'none'}   devices: {'; '.join(devices) or 'none'}",
        f"  {_folder_text(machine.home)}",
    ]
    return [*lines, *([f"  {_folder_text(machine.data)}"] if machine.data else [])]


def _folder_text(folder: Folder) -> str:
    if folder.problem:
        return f"{folder.path}: {folder.problem}"
    speed = f", {folder.write_mib_s:.0f} MiB/s to the disk" if folder.write_mib_s is not None else ", only read"
    return f"{folder.path}: {folder.kind or 'local disk'}, {folder.free_gib:.0f} GiB free{speed}"
