"""The curriculum: which share of the mini-batch is expanded in which epoch.

Easy samples first: only the part of the mini-batch that lies closest to its own proxies is expanded, and that part grows
with the epoch. The published schedule (Le and Woo, PAKDD 2024, and its code) is

    share(e) = end - (end - start) (1 + cos(pi min(e, T) / T)) / 2,   start 0, end 0.4, T = min(epochs, 200),

which is ``shape="cosine"`` with ``ramp=min(1, 200 / epochs)``. Plain arithmetic on the host: the number of expanded samples
must be known without asking the device.
"""

from __future__ import annotations

import math
from typing import Literal

Shape = Literal["cosine", "linear", "step", "constant"]


def share_at(epoch: int, epochs: int, *, shape: Shape, start_share: float, end_share: float, ramp: float) -> float:
    """The share of the mini-batch that is expanded in `epoch`.

    Args:
        epoch: counted from 0.
        epochs: the training's horizon.
        shape: cosine and linear go from start to end along the ramp; step is start until the ramp is over, then end;
            constant is end from the first epoch.
        start_share: in 0..1.
        end_share: in 0..1.
        ramp: part of the horizon, above 0 and up to 1, after which `end_share` is reached.

    >>> share_at(25, 100, shape="linear", start_share=0.0, end_share=0.4, ramp=1.0)
    0.1
    """
    # Rounded, so that a ramp of 200/302 over 302 epochs is over in epoch 200 and not, by a rounding error, one later.
    progress = min(1.0, round(epoch / (ramp * epochs), 12))
    match shape:
        case "cosine":
            passed = (1 - math.cos(math.pi * progress)) / 2
        case "linear":
            passed = progress
        case "step":
            passed = float(progress == 1.0)
        case "constant":
            passed = 1.0
    return start_share + (end_share - start_share) * passed


def expanded_count(batch_size: int, share: float) -> int:
    """How many samples of a mini-batch are expanded: the share, rounded, in 0..batch_size."""
    return min(batch_size, max(0, round(batch_size * share)))


def first_epoch_reaching(
    fraction_of_end: float, epochs: int, *, shape: Shape, start_share: float, end_share: float, ramp: float
) -> int:
    """How many epochs must be over before one of them had `fraction_of_end` of `end_share`, in 1..epochs.

    Before that, trials that differ only in SEE have had (nearly) the same training and must not be compared. A schedule that
    gets there in no epoch gives `epochs`.

    >>> first_epoch_reaching(0.5, 100, shape="cosine", start_share=0.0, end_share=0.4, ramp=1.0)
    51
    """
    goal = fraction_of_end * end_share - 1e-12
    shares = (
        share_at(epoch, epochs, shape=shape, start_share=start_share, end_share=end_share, ramp=ramp) for epoch in range(epochs)
    )
    return next((epoch + 1 for epoch, share in enumerate(shares) if share >= goal), epochs)
