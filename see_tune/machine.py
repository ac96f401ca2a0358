"""What one machine is: its software, its devices, and what it sees of the shared folders. `see-tune doctor` compares them.

`look` runs on every node of a cluster, so it takes and returns plain values, touches no GPU, and tells of what is broken
instead of raising.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

from see_tune.errors import UserError
from see_tune.imports import quick_imports
from see_tune.mounts import network_file_system

LIBRARIES = ("see-tune", "torch", "torchvision", "timm", "ray", "optuna", "mlflow", "numpy", "pydantic")
_PROBE_BYTES = 16 * 2**20
_NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,memory.total,memory.used,driver_version", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Device:
    """One GPU. memory_gib: in all; used_gib: taken by whomever."""

    name: str
    memory_gib: float
    used_gib: float


@dataclass(frozen=True)
class Folder:
    """A shared folder as one machine sees it.

    kind: of its file system, where that is a network's. problem: why it cannot be used; None where it can.
    free_gib: 0 where it is not there. write_mib_s: of one file, flushed to the disk; None where nothing is written there.
    marked: whether the file that the asking process left there is seen; None where it left none.
    """

    path: str
    kind: str | None
    problem: str | None
    free_gib: float
    write_mib_s: float | None
    marked: bool | None


@dataclass(frozen=True)
class Machine:
    """One machine. clock: its Unix time in seconds while it was looked at. faiss: its build, in words."""

    host: str
    python: str
    libraries: Mapping[str, str | None]
    cpus: int
    memory_gib: float
    devices: tuple[Device, ...]
    driver: str | None
    faiss: str
    home: Folder
    data: Folder | None
    clock: float


def count_gpus() -> int:
    """GPUs of this machine that CUDA_VISIBLE_DEVICES leaves, without loading torch where there is no driver."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return 0
    with quick_imports():
        import torch

    return torch.cuda.device_count()


def check_faiss() -> None:
    """Refuse an environment in which the CPU and the GPU build of faiss overwrite each other's files.

    Raises:
        UserError: both are installed.
    """
    names = {(distribution.name or "").lower().replace("_", "-") for distribution in distributions()}
    builds = sorted(name for name in names if name == "faiss-cpu" or name.startswith("faiss-gpu"))
    if len(builds) > 1:
        raise UserError(
            f"{' and '.join(builds)} are both installed; they provide the same module and overwrite each other, so only one of "
            f"them may be. Uninstall both, then install one again: pip uninstall {' '.join(builds)}"
        )


def look(home: str, data: str | None, marker: str | None) -> Machine:
    """This machine now.

    home: the home folder. data: the datasets' folder, if there is one. marker: a file's name that should be in `home`.
    """
    devices, driver = _devices()
    return Machine(
        host=socket.gethostname(),
        python=platform.python_version(),
        libraries={name: _version(name) for name in LIBRARIES},
        cpus=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        devices=devices,
        driver=driver,
        faiss=_faiss(),
        home=_home(Path(home), marker),
        data=_data(Path(data)) if data else None,
        clock=time.time(),
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _faiss() -> str:
    builds = [f"{name} {found}" for name in ("faiss-cpu", "faiss-gpu") if (found := _version(name))]
    return " and ".join(builds) or "none: torch searches"


def _devices() -> tuple[tuple[Device, ...], str | None]:
    """The driver's own account, which no CUDA_VISIBLE_DEVICES narrows and which takes no memory of a device."""
    if shutil.which(_NVIDIA_SMI[0]) is None:
        return (), None
    done = subprocess.run(_NVIDIA_SMI, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        return (), None
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    devices = tuple(Device(name, float(total) / 1024, float(used) / 1024) for name, total, used, _ in rows)
    return devices, rows[0][3] if rows else None


def _home(path: Path, marker: str | None) -> Folder:
    kind = network_file_system(path)
    probe = path / f".probe-{socket.gethostname()}-{os.getpid()}"
    try:
        free = shutil.disk_usage(path).free / 2**30
        speed = _write_speed(probe)
    except OSError as error:
        return Folder(str(path), kind, error.strerror or str(error), 0.0, None, None)
    finally:
        probe.unlink(missing_ok=True) if path.is_dir() else None
    return Folder(str(path), kind, None, free, speed, (path / marker).is_file() if marker else None)


def _write_speed(probe: Path) -> float:
    begun = time.perf_counter()
    with probe.open("wb") as file:
        file.write(os.urandom(_PROBE_BYTES))
        file.flush()
        os.fsync(file.fileno())
    return _PROBE_BYTES / 2**20 / (time.perf_counter() - begun)


def _data(path: Path) -> Folder:
    kind = network_file_system(path)
    try:
        free = shutil.disk_usage(path).free / 2**30
        next(path.iterdir(), None)
    except OSError as error:
        return Folder(str(path), kind, error.strerror or str(error), 0.0, None, None)
    return Folder(str(path), kind, None, free, None, None)
