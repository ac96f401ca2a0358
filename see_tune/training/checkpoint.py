"""What a training leaves on disk, written so that a cut at any instant loses one epoch at most.

    <folder>/
    ├── 0007-3f1c...e2.pt    the whole state after epoch 7; the name carries 16 hex digits of the content's SHA-256
    ├── 0006-9a40...17.pt    the one before: the fall-back
    ├── best.safetensors     the weights of the best epoch so far; its header says how to build the model
    └── test_ranks.npz       of a final training: how it did at each query of the test classes

A file is written under a temporary name, brought to the disk and renamed, so a name that is there stands for a whole file;
the digits are compared at each load, so a file that rotted is passed over for the one before. Nothing is unpickled but tensors
and plain values (weights_only=True).
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from see_tune.errors import CheckpointError
from see_tune.models import weights_bytes
from see_tune.wording import counted

BEST_FILE = "best.safetensors"
RANKS_FILE = "test_ranks.npz"
_KEPT = 2
_TEMPORARY = ".tmp"
_log = logging.getLogger(__name__)


def save_checkpoint(folder: Path, epoch: int, state: Mapping[str, Any]) -> Path:
    """Write the state after `epoch` and remove all but the newest two; returns the file.

    state: tensors, numbers, strings, None, and lists, tuples and dicts of them.

    Raises: CheckpointError where it cannot be written (a full disk); what was there before stays good.
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    content = buffer.getbuffer()
    file = folder / f"{epoch:04d}-{_digits(content)}.pt"
    write_whole(file, content)
    for old in _newest_first(folder)[_KEPT:]:
        old.unlink(missing_ok=True)
    return file


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest state that is whole, on the CPU; None where the folder holds none at all.

    Raises: CheckpointError where there are checkpoints and none of them is good.
    """
    files = _newest_first(folder)
    for file in files:
        content = file.read_bytes()
        if _digits(content) == file.stem.partition("-")[2]:
            state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
            return state
        _log.warning("checkpoint %s is damaged and passed over", file)
    if files:
        raise CheckpointError(
            f"{folder} holds {counted(len(files), 'checkpoint')}, and none is whole (the content does not match the name). "
            "A good one loads as it is; remove the damaged ones to train from the start."
        )
    return None


def save_weights(folder: Path, model: nn.Module, metadata: Mapping[str, str]) -> Path:
    """Write a model's weights as the folder's best; `metadata` goes into the file's header.

    Raises: CheckpointError where they cannot be written; the best before stays good.
    """
    file = folder / BEST_FILE
    write_whole(file, weights_bytes(model, metadata))
    return file


def load_weights(folder: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The best weights of a folder, on the CPU, and the header they were written with.

    Raises: CheckpointError where there are none, or they cannot be read.
    """
    file = folder / BEST_FILE
    try:
        with safe_open(file, framework="pt") as stored:
            return {name: stored.get_tensor(name) for name in stored.keys()}, stored.metadata() or {}  # noqa: SIM118
    except (OSError, SafetensorError) as exc:
        why = f"cannot be read ({exc})" if file.exists() else "does not exist"
        raise CheckpointError(
            f"{file} {why}. A training writes its weights there after each epoch that is its best; run the training again, or "
            "name the folder of one that finished."
        ) from exc


def save_ranks(folder: Path, labels: NDArray[np.int64], best_positive_rank: NDArray[np.int64]) -> Path:
    """Write the class of each query and the rank of its best positive (0 where it has none), both (Q,).

    Raises: CheckpointError where they cannot be written.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, labels=labels.astype(np.int32), best_positive_rank=best_positive_rank.astype(np.int32))
    file = folder / RANKS_FILE
    write_whole(file, buffer.getbuffer())
    return file


def load_ranks(folder: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """(Q,) the class of each query and (Q,) the rank of its best positive; None where none can be read."""
    try:
        with np.load(folder / RANKS_FILE, allow_pickle=False) as stored:
            return stored["labels"].astype(np.int64), stored["best_positive_rank"].astype(np.int64)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        _log.debug("%s: no ranks (%s)", folder, error)
        return None


def _digits(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _newest_first(folder: Path) -> list[Path]:
    def age(file: Path) -> tuple[int, float]:
        return int(file.name.partition("-")[0]), file.stat().st_mtime

    return sorted(folder.glob("[0-9]*-*.pt"), key=age, reverse=True)


def write_whole(file: Path, content: bytes | memoryview) -> None:
    """Put `content` under the name `file`, all of it or nothing; removes what a training left that was killed in here."""
    temporary = file.with_name(file.name + _TEMPORARY)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        for leftover in file.parent.glob(f"*{_TEMPORARY}"):
            leftover.unlink(missing_ok=True)
        try:
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
            _bring_to_disk(file.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as exc:
        raise CheckpointError(
            f"{file} cannot be written: {exc}. The checkpoint before it stays good. Free space there, or allow writing; "
            "the training goes on from what was saved."
        ) from exc


def _bring_to_disk(folder: Path) -> None:
    """A rename is on the disk once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
