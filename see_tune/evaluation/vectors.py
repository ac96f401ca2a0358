"""Rows that can be compared: embeddings of any float type become finite unit rows in float32.

The similarity everywhere in this room is the cosine. Embeddings are unit vectors by construction here; others are
normalised on the way in, so that a tolerance on similarities means the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from see_tune.errors import EvaluationError

Embeddings = Tensor | NDArray[np.floating] | Sequence[Sequence[float]]

_ROWS_AT_A_TIME = 4096


def as_matrix(embeddings: Embeddings, name: str = "embeddings") -> Tensor:
    """The same numbers as a (N, D) tensor, on their own device, without a copy where none is needed.

    Raises:
        EvaluationError: not two-dimensional, empty, not of a floating type, or masked.
    """
    if not isinstance(embeddings, Tensor):
        embeddings = as_array(embeddings, name)
    floating = embeddings.is_floating_point() if isinstance(embeddings, Tensor) else np.issubdtype(embeddings.dtype, np.floating)
    if embeddings.ndim != 2 or 0 in embeddings.shape or not floating:
        raise EvaluationError(
            f"{name} of shape {tuple(embeddings.shape)} and type {embeddings.dtype} cannot be ranked; valid are N rows of D "
            "floating-point numbers, N and D at least 1. Hand over one embedding a row."
        )
    if isinstance(embeddings, Tensor):
        return embeddings.detach()
    rows = np.ascontiguousarray(embeddings)
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())  # torch warns about memory it may not write


def as_array(values: ArrayLike, name: str, dtype: type | None = None) -> NDArray[Any]:
    """An array of what a caller handed over: an array as it is, a sequence as numpy reads it.

    Raises:
        EvaluationError: it has masked entries, which numpy would count as if they were there, or rows of unlike lengths.
    """
    if np.ma.is_masked(values):
        raise EvaluationError(f"{name} have masked entries, and every row counts; leave those rows out before")
    try:
        return np.asarray(values, None if isinstance(values, np.ndarray) else dtype)
    except (TypeError, ValueError) as error:
        raise EvaluationError(f"{name} are no array ({error}); hand over a tensor, an array, or rows of equal length") from error


def unit_rows(matrix: Tensor, order: Tensor | None = None, name: str = "embeddings") -> Tensor:
    """Rows divided by their Euclidean norm, in `order` where one is given; a row of zeros stays zero.

    Args:
        matrix: (N, D) of any floating type.
        order: (M,) int64, the row of `matrix` that each row of the result comes from.

    Returns:
        (M, D) float32 on the device of `matrix`, newly allocated.

    Raises:
        EvaluationError: a number that float32 cannot hold as a finite one.
    """
    rows = len(matrix) if order is None else len(order)
    units = torch.empty(rows, matrix.shape[1], dtype=torch.float32, device=matrix.device)
    for start in range(0, rows, _ROWS_AT_A_TIME):
        window = slice(start, start + _ROWS_AT_A_TIME)
        block = (matrix[window] if order is None else matrix[order[window]]).to(torch.float32)
        # The largest entry first: the square of 1e30 is no float32.
        largest = block.abs().amax(dim=1, keepdim=True)
        _refuse_non_finite(largest, name, window, order)
        block = block / largest.clamp_min(torch.finfo(torch.float32).tiny)
        units[window] = torch.nn.functional.normalize(block, dim=1)
    return units


def _refuse_non_finite(largest: Tensor, name: str, window: slice, order: Tensor | None) -> None:
    broken = (~largest.isfinite()).flatten().nonzero().flatten()
    if len(broken) == 0:
        return
    row = window.start + int(broken[0])
    row = row if order is None else int(order[row])
    raise EvaluationError(
        f"row {row} of the {name} holds NaN or a number too large for float32; every number must be finite. The model has "
        "diverged: lower the learning rate, or train without mixed precision."
    )


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No gradients, and float32 products that are float32: neither autocast nor TF32, whatever the caller trains with."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
