"""The cross-batch memory: its place in the queue is part of the state."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from see_tune.errors import SpecError
from see_tune.memory_losses import MultiSimilarityXBM


def build(memory_size: int = 10) -> MultiSimilarityXBM:
    return MultiSimilarityXBM(embedding_size=4, memory_size=memory_size, alpha=2.0, beta=50.0, base=0.5)


def losses_of(loss: MultiSimilarityXBM, batches: list[Tensor]) -> list[float]:
    return [loss(batch, torch.arange(6) % 3).item() for batch in batches]


@pytest.mark.parametrize("cut", [0, 1, 2, 4])
def test_a_resumed_memory_goes_on_where_it_was_cut(cut: int) -> None:
    batches = list(F.normalize(torch.randn(6, 6, 4, generator=torch.Generator().manual_seed(0)), dim=-1))
    expected = losses_of(build(), batches)
    first, resumed = build(), build()
    losses_of(first, batches[:cut])
    resumed.load_state_dict(first.state_dict())
    assert losses_of(resumed, batches[cut:]) == expected[cut:]


def test_a_batch_above_the_memory_is_refused() -> None:
    with pytest.raises(SpecError, match=r"memory_size 5 is smaller than a mini-batch of 6"):
        build(memory_size=5)(torch.randn(6, 4), torch.arange(6) % 3)
