"""Losses with a memory of earlier mini-batches, made fit for resuming.

One station with `losses.py`, which names them by path: importing this module imports torch.
"""

from __future__ import annotations

import torch
from pytorch_metric_learning.losses import CrossBatchMemory, MultiSimilarityLoss
from torch import Tensor

from see_tune.errors import SpecError


class MultiSimilarityXBM(CrossBatchMemory):  # type: ignore[misc]
    """Multi-Similarity loss against a cross-batch memory (Wang et al., CVPR 2020).

    pytorch-metric-learning keeps the memory in its state but not where in the memory it writes next; a training that resumed
    would overwrite other rows than one that was not cut. Here `state_dict` has both.

    Args:
        embedding_size: D.
        memory_size: embeddings kept, at least the mini-batch.
        alpha, beta, base: of MultiSimilarityLoss.
    """

    def __init__(self, *, embedding_size: int, memory_size: int, alpha: float, beta: float, base: float) -> None:
        super().__init__(MultiSimilarityLoss(alpha=alpha, beta=beta, base=base), embedding_size, memory_size=memory_size)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The loss of (B, D) embeddings with (B,) labels, a scalar; the mini-batch enters the memory first.

        Raises:
            SpecError: the mini-batch does not fit into the memory.
        """
        if len(embeddings) > self.memory_size:
            raise SpecError(
                f"loss.multi_similarity_xbm.memory_size {self.memory_size} is smaller than a mini-batch of {len(embeddings)}; "
                "the memory must hold one; raise memory_size or lower train.batch_size"
            )
        loss: Tensor = super().forward(embeddings, labels)
        return loss

    def get_extra_state(self) -> Tensor:
        return torch.tensor([self.queue_idx, int(self.has_been_filled)])

    def set_extra_state(self, state: Tensor) -> None:
        self.queue_idx, self.has_been_filled = int(state[0]), bool(state[1])
