"""What a machine says of itself; the driver's own tool is played by a script."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from see_tune.errors import UserError
from see_tune.machine import Device, check_faiss, look


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_every_device_is_told_whatever_this_process_may_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path, monkeypatch, "echo 'NVIDIA H200, 143771, 4, 570.86.15'; echo 'NVIDIA H200, 143771, 2048, 570.86.15'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    machine = look(str(tmp_path), None, None)

    assert machine.driver == "570.86.15"
    assert machine.devices[1] == Device("NVIDIA H200", 143771 / 1024, 2.0)


def test_driver_that_does_not_work_is_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path, monkeypatch, "echo 'NVIDIA-SMI has failed'; exit 9")

    machine = look(str(tmp_path), None, None)

    assert (machine.devices, machine.driver) == ((), None)


def test_folder_is_told_with_its_room_and_speed_or_with_why_not(tmp_path: Path) -> None:
    (tmp_path / "marker").touch()

    here, elsewhere = (
        look(str(tmp_path), str(tmp_path), "marker"),
        look(str(tmp_path / "absent"), str(tmp_path / "absent"), "marker"),
    )

    assert here.home.marked and here.home.problem is None and here.home.free_gib > 0 and (here.home.write_mib_s or 0) > 0
    assert here.data is not None and here.data.write_mib_s is None
    assert elsewhere.data is not None
    assert (elsewhere.home.problem, elsewhere.data.problem) == ("No such file or directory",) * 2
    assert [path.name for path in tmp_path.iterdir()] == ["marker"]


@pytest.mark.parametrize("gpu_build", ["faiss-gpu", "faiss_gpu_cu12"])
def test_two_builds_of_faiss_are_refused(monkeypatch: pytest.MonkeyPatch, gpu_build: str) -> None:
    installed = [SimpleNamespace(name=name) for name in ("numpy", "faiss-cpu", gpu_build)]
    monkeypatch.setattr("see_tune.machine.distributions", lambda: installed)
    with pytest.raises(UserError, match=r"faiss-cpu and faiss-gpu.* are both installed"):
        check_faiss()


def test_one_build_of_faiss_is_fine() -> None:
    check_faiss()
