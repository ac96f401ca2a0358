"""The random streams that a training draws from, taken down and put back.

A checkpoint carries them; a micro-batch's second pass repeats its first with them; a step that ran out of memory is tried again
with them. (Batches and augmentations are functions of the seed and the epoch, and SEE counts its own draws: no stream to keep.)
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

RandomState = dict[str, Any]


def capture_random(device: torch.device) -> RandomState:
    """The state of torch's, Python's and numpy's global streams, and of `device`'s own, in types that weights_only loads."""
    numpy_state = np.random.get_state(legacy=False)
    return {
        "torch": torch.get_rng_state(),
        "device": _device_state(device),
        "python": random.getstate(),
        "numpy": {**numpy_state, "state": {**numpy_state["state"], "key": numpy_state["state"]["key"].tolist()}},
    }


def restore_random(state: RandomState, device: torch.device) -> None:
    """Put back what `capture_random` took; a device of another kind than it was taken from keeps its own stream."""
    torch.set_rng_state(state["torch"])
    if state["device"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["device"], device)
    random.setstate(state["python"])
    numpy_state = state["numpy"]
    key = np.array(numpy_state["state"]["key"], np.uint32)
    np.random.set_state({**numpy_state, "state": {**numpy_state["state"], "key": key}})


def _device_state(device: torch.device) -> Tensor | None:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None
