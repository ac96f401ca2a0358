"""The gradients of one mini-batch, in one piece or in exact micro-batches.

A loss over a whole batch is no sum over parts of it, so accumulating gradients would train with another loss. Two passes do
not (Gao et al., "Scaling deep contrastive learning batch size under memory limited setup", RepL4NLP 2021): embed all chunks
without a graph, take the loss of the whole batch and its gradient with respect to the embeddings, then embed each chunk again,
with the same dropout, and send its part of that gradient through. Memory is that of one chunk; the price is one more
forward pass.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from see_tune.training.randomness import capture_random, restore_random

Embed = Callable[[Tensor], Tensor]


def backward(
    embed: Embed, loss: Callable[[Tensor], Tensor], images: Tensor, *, micro_batch: int, scale: Callable[[Tensor], Tensor]
) -> Tensor:
    """Add the gradients of scale(loss(embed(images))) to the parameters' `.grad`; returns the loss, detached and unscaled.

    Args:
        embed: (b, 3, H, W) -> (b, D), each image on its own (no BatchNorm that looks at the batch), for any b.
        loss: (B, D) -> a scalar.
        images: (B, 3, H, W).
        micro_batch: images embedded at a time; B or more: the plain single pass.
        scale: of the loss before it is sent back (a GradScaler's).
    """
    if micro_batch >= len(images):
        value = loss(embed(images))
        scale(value).backward()  # type: ignore[no-untyped-call]
        return value.detach()
    chunks = torch.split(images, micro_batch)
    streams, parts = [], []
    for chunk in chunks:
        streams.append(capture_random(images.device))
        with torch.no_grad():
            parts.append(embed(chunk))
    embeddings = torch.cat(parts).requires_grad_()
    value = loss(embeddings)
    scale(value).backward()  # type: ignore[no-untyped-call]
    assert embeddings.grad is not None  # every loss is a function of the embeddings
    after = capture_random(images.device)
    for chunk, stream, gradient in zip(chunks, streams, torch.split(embeddings.grad, micro_batch), strict=True):
        restore_random(stream, images.device)
        embed(chunk).backward(gradient)  # type: ignore[no-untyped-call]
    restore_random(after, images.device)
    return value.detach()
