"""see_tune.training.checkpoint"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from see_tune.errors import CheckpointError
from see_tune.training.checkpoint import (
    BEST_FILE,
    RANKS_FILE,
    load_checkpoint,
    load_ranks,
    load_weights,
    save_checkpoint,
    save_ranks,
    save_weights,
)


def state(epoch: int) -> dict[str, object]:
    return {"epoch": epoch, "weights": torch.full((4,), float(epoch)), "nested": {"names": ["a", "b"], "none": None}}


@contextmanager
def small_disk(limit_bytes: int) -> Iterator[None]:
    """No file may grow beyond the limit: writing fails as on a full disk, and this process alone is affected."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 3, state(3))

    loaded = load_checkpoint(tmp_path)

    assert loaded is not None
    assert loaded["epoch"] == 3
    assert torch.equal(loaded["weights"], torch.full((4,), 3.0))
    assert loaded["nested"] == {"names": ["a", "b"], "none": None}


def test_an_empty_or_absent_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "absent") is None


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    for epoch in (8, 9, 10, 11):
        save_checkpoint(tmp_path, epoch, state(epoch))

    assert sorted(file.name[:4] for file in tmp_path.iterdir()) == ["0010", "0011"]
    assert load_checkpoint(tmp_path)["epoch"] == 11


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, damage: str) -> None:
    save_checkpoint(tmp_path, 1, state(1))
    newest = save_checkpoint(tmp_path, 2, state(2))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes({"flip": bytes(content), "truncate": bytes(content[:100]), "empty": b""}[damage])

    assert load_checkpoint(tmp_path)["epoch"] == 1


def test_all_damaged_is_an_error(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state(1)).write_bytes(b"rot")

    with pytest.raises(CheckpointError, match="none is whole"):
        load_checkpoint(tmp_path)


def test_a_full_disk_leaves_the_checkpoint_before_it_good(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state(1))

    with small_disk(200), pytest.raises(CheckpointError, match="cannot be written"):
        save_checkpoint(tmp_path, 2, state(2))

    assert load_checkpoint(tmp_path)["epoch"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_leaves_the_best_weights_good(tmp_path: Path) -> None:
    model = nn.Linear(50, 50)
    save_weights(tmp_path, model, {"epoch": "1"})

    with small_disk(200), pytest.raises(CheckpointError):
        save_weights(tmp_path, nn.Linear(50, 50), {"epoch": "2"})

    weights, header = load_weights(tmp_path)
    assert header == {"epoch": "1"}
    assert torch.equal(weights["weight"], model.weight)


def test_a_writer_killed_at_any_moment_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    script = (
        "import sys, torch; from pathlib import Path; from see_tune.training.checkpoint import save_checkpoint\n"
        "for epoch in range(1, 10**6):\n"
        "    save_checkpoint(Path(sys.argv[1]), epoch, {'epoch': epoch, 'weights': torch.full((50_000,), float(epoch))})\n"
        "    print(epoch, flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    reported = 0
    while reported < 20:
        reported = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    reported = int((writer.stdout.read().split() or [reported])[-1])
    writer.wait()

    loaded = load_checkpoint(tmp_path)

    assert loaded["epoch"] >= reported
    assert torch.equal(loaded["weights"], torch.full((50_000,), float(loaded["epoch"])))
    save_checkpoint(tmp_path, 10**6, state(10**6))
    assert not list(tmp_path.glob("*.tmp"))


def test_a_checkpoint_is_readable_as_the_umask_says(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        assert save_checkpoint(tmp_path, 1, state(1)).stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(umask)


def test_weights_of_a_channels_last_model_come_back(tmp_path: Path) -> None:
    model = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    save_weights(tmp_path, model, {})

    weights, _ = load_weights(tmp_path)

    assert torch.equal(weights["weight"], model.weight)


def test_absent_or_foreign_weights_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"{BEST_FILE} does not exist"):
        load_weights(tmp_path)
    (tmp_path / BEST_FILE).write_bytes(b"something else")
    with pytest.raises(CheckpointError, match=rf"{BEST_FILE} cannot be read"):
        load_weights(tmp_path)


def test_ranks_are_loaded_as_they_were_saved(tmp_path: Path) -> None:
    labels, ranks = np.array([4, 4, 9]), np.array([1, 60_000, 0])
    save_ranks(tmp_path / "trial", labels, ranks)

    loaded = load_ranks(tmp_path / "trial")

    assert loaded is not None
    np.testing.assert_array_equal(loaded, [labels, ranks])


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut", b"\x80\x04\x95 a pickle"])
def test_ranks_that_cannot_be_read_are_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / RANKS_FILE).write_bytes(content)

    assert load_ranks(tmp_path) is None
