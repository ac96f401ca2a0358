"""What a diagnosis finds wrong with a machine, and that this one can be looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from see_tune.doctor import Patient, compare, diagnose
from see_tune.errors import ClusterError
from see_tune.home import Home
from see_tune.machine import Device, Folder, Machine

WELL = Machine(
    host="head",
    python="3.11.7",
    libraries={"torch": "2.14.1", "ray": "2.60.0"},
    cpus=2,
    memory_gib=24.0,
    devices=(),
    driver=None,
    faiss="faiss-cpu 1.15.1",
    home=Folder("/studies", "nfs4", None, 100.0, 80.0, True),
    data=Folder("/data", "nfs4", None, 100.0, None, None),
    clock=0.0,
)


def found(machine: Machine, skew_s: float = 0.0) -> list[tuple[bool, str]]:
    return [(finding.fatal, finding.text) for finding in compare(Patient("worker", machine, skew_s, 0.1), WELL)]


def test_machine_like_the_one_that_asks_has_no_findings() -> None:
    assert found(WELL) == []
    assert found(replace(WELL, python="3.11.9"), skew_s=1.5) == []


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (replace(WELL, python="3.12.1"), "Python 3.12.1, and 3.11.7 here"),
        (replace(WELL, libraries={"torch": "2.13.0", "ray": "2.60.0"}), "torch 2.13.0, and 2.14.1 here"),
        (replace(WELL, libraries={"torch": "2.14.1", "ray": None}), "ray absent, and 2.60.0 here"),
        (replace(WELL, faiss="faiss-cpu 1.15.1 and faiss-gpu 1.15.1"), "overwrite each other"),
        (replace(WELL, home=replace(WELL.home, problem="Permission denied")), "/studies: Permission denied"),
        (replace(WELL, home=replace(WELL.home, marked=False)), "/studies is another folder than here"),
        (replace(WELL, home=replace(WELL.home, free_gib=0.5)), "/studies has 0.5 GiB free"),
        (replace(WELL, data=Folder("/data", None, "No such file or directory", 0.0, None, None)), "/data: No such file"),
    ],
)
def test_machine_on_which_a_study_would_fail_is_an_error(machine: Machine, text: str) -> None:
    ((fatal, told),) = found(machine)

    assert fatal
    assert text in told


def test_machine_on_which_a_study_would_only_be_slower_or_askew_is_a_warning() -> None:
    device = Device("NVIDIA H200", 139.0, 0.0)

    assert [fatal for fatal, _ in found(replace(WELL, devices=(device,)))] == [False]
    assert found(WELL, skew_s=-7.0)[0] == (False, "its clock is -7.0 s off: curves of its trials would lie elsewhere in time")


def test_this_machine_is_looked_at_and_nothing_is_left_in_its_home(tmp_path: Path) -> None:
    diagnosis = diagnose(Home(tmp_path / "home"), str(tmp_path), None)

    (patient,) = diagnosis.patients
    assert patient.machine.home.marked
    assert patient.machine.libraries["see-tune"] and patient.machine.cpus
    assert [finding for finding in diagnosis.findings if "GiB free" not in finding.text] == []
    assert list((tmp_path / "home").iterdir()) == []


def test_storage_that_does_not_answer_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEE_TUNE_STORAGE", "postgresql+psycopg://me@127.0.0.1:9/trials")

    (finding,) = diagnose(Home(tmp_path), None, None).findings

    assert (finding.where, finding.fatal) == ("storage", True)
    assert "127.0.0.1" in finding.text


def test_home_that_cannot_be_made_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ClusterError, match="SEE_TUNE_HOME"):
        diagnose(Home(tmp_path / "file"), None, None)
