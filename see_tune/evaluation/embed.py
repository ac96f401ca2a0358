"""Model and batches -> embeddings: in order, once each, the model left as it was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from see_tune.errors import EvaluationError


def embed(
    model: nn.Module, batches: Iterable[Tensor], *, device: torch.device | str, amp_dtype: torch.dtype | None = None
) -> Tensor:
    """The embeddings of all batches, row for row.

    Args:
        model: maps a batch (B, ...) to (B, D); it must be on `device`. It runs in eval mode and is given back in the mode of
            each of its parts (a frozen BatchNorm stays frozen).
        batches: batches of images (B, C, H, W), of any sizes.
        amp_dtype: bfloat16 or float16 to run under autocast; None runs as the weights are.

    Returns:
        (N, D) float32 on the CPU.

    Raises:
        EvaluationError: no batch came.
    """
    device = torch.device(device)
    autocast = torch.autocast(device.type, dtype=amp_dtype, enabled=amp_dtype is not None)
    with _in_eval_mode(model), torch.inference_mode(), autocast:
        rows = [model(batch.to(device, non_blocking=True)).to("cpu", torch.float32) for batch in batches]
    if not rows:
        raise EvaluationError("there is nothing to embed: 0 batches came; at least one image is needed. Check the split's rows.")
    return torch.cat(rows)  # outside inference mode: an ordinary tensor


@contextmanager
def _in_eval_mode(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
