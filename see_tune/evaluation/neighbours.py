"""The k nearest neighbours, exact, in bounded memory: what a gallery shows and an index answers with.

faiss does the search where it is installed, on a GPU where its GPU build and a device are there; this is the only module
that knows it. Without faiss, torch does the same search on the device of the gallery. A search that the GPU cannot take
(more than 2048 neighbours, memory that others hold) goes to the CPU and has the same answer.

The metrics do not come from here: a list of neighbours says nothing of ties, see `ranking`.
"""

from __future__ import annotations

import functools
import importlib
import logging
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from see_tune.errors import EvaluationError
from see_tune.evaluation.vectors import Embeddings, as_matrix, full_precision, unit_rows
from see_tune.machine import check_faiss
from see_tune.wording import counted

logger = logging.getLogger(__name__)

Neighbours = tuple[NDArray[np.float32], NDArray[np.int64]]

_FAISS_GPU_MOST_NEIGHBOURS = 2048
_FAISS_GPU_SCRATCH_BYTES = 64 * 2**20  # its default is 1.5 GB
_FAISS_GPU_PAGE_BYTES = 96 * 2**20
_TILE = 2048


def nearest(queries: Embeddings, gallery: Embeddings, k: int, *, exclude_self: bool) -> Neighbours:
    """The k gallery rows of highest cosine similarity to each query, nearest first.

    Args:
        queries: (Q, D) of any floating type, normalised here.
        gallery: (G, D) likewise.
        k: 1..G, or 1..G-1 with `exclude_self`.
        exclude_self: the queries are the gallery, row for row, and row i is not a neighbour of query i.

    Returns:
        (Q, k) float32 similarities, descending, and (Q, k) int64 gallery rows. Rows of equal similarity come in any order.

    Raises:
        EvaluationError: numbers that are not finite, shapes that do not agree, a k that the gallery cannot fill.
        UserError: faiss-cpu and faiss-gpu are both installed.
    """
    rows, answers = as_matrix(queries, "queries"), as_matrix(gallery, "gallery")
    _check(rows, answers, k, exclude_self)
    with full_precision(answers.device):
        answer_units = unit_rows(answers, name="gallery")
        query_units = answer_units if exclude_self else unit_rows(rows, name="queries").to(answers.device)
        faiss = _import_faiss()
        if faiss is None:
            return _search_with_torch(query_units, answer_units, k, exclude_self)
    found = _search_with_faiss(faiss, query_units.cpu().numpy(), answer_units.cpu().numpy(), k + exclude_self)
    return _without_self(*found) if exclude_self else found


def _check(queries: Tensor, gallery: Tensor, k: int, exclude_self: bool) -> None:
    if queries.shape[1] != gallery.shape[1] or (exclude_self and queries.shape != gallery.shape):
        raise EvaluationError(
            f"queries of shape {tuple(queries.shape)} do not fit a gallery of shape {tuple(gallery.shape)}; the dimensions must "
            "be equal, and with exclude_self the rows as well. Embed both with one model."
        )
    most = len(gallery) - exclude_self
    if not 1 <= k <= most:
        raise EvaluationError(
            f"k = {k} neighbours cannot be had from {counted(most, 'gallery row')}; valid are 1..{most}. Lower k."
        )


@functools.cache
def _import_faiss() -> Any:
    check_faiss()
    try:
        return importlib.import_module("faiss")
    except ImportError:
        return None


def _search_with_faiss(faiss: Any, queries: NDArray[np.float32], gallery: NDArray[np.float32], k: int) -> Neighbours:
    """The k nearest, self and all."""
    if faiss.get_num_gpus() > 0 and k <= _FAISS_GPU_MOST_NEIGHBOURS:
        try:
            return _search_on_gpu(faiss, queries, gallery, k)
        except RuntimeError as refusal:
            logger.warning("the GPU could not take the search for %d neighbours, the CPU does: %s", k, refusal)
    faiss.omp_set_num_threads(torch.get_num_threads())
    similarities, indices = faiss.knn(queries, gallery, k, metric=faiss.METRIC_INNER_PRODUCT)
    return similarities, indices


def _search_on_gpu(faiss: Any, queries: NDArray[np.float32], gallery: NDArray[np.float32], k: int) -> Neighbours:
    resources = faiss.StandardGpuResources()
    resources.setTempMemory(_FAISS_GPU_SCRATCH_BYTES)
    similarities, indices = faiss.knn_gpu(
        resources,
        queries,
        gallery,
        k,
        metric=faiss.METRIC_INNER_PRODUCT,
        vectorsMemoryLimit=_FAISS_GPU_PAGE_BYTES,
        queriesMemoryLimit=_FAISS_GPU_PAGE_BYTES,
    )
    return similarities, indices


def _without_self(similarities: NDArray[np.float32], indices: NDArray[np.int64]) -> Neighbours:
    """(N, k) of (N, k + 1): row i loses neighbour i, or its last one where equals of i have pushed i out."""
    keep = indices != np.arange(len(indices))[:, None]
    keep[keep.all(axis=1), -1] = False
    shape = len(indices), indices.shape[1] - 1
    return similarities[keep].reshape(shape), indices[keep].reshape(shape)


def _search_with_torch(queries: Tensor, gallery: Tensor, k: int, exclude_self: bool) -> Neighbours:
    found = [
        _search_window(queries, gallery, slice(start, min(start + _TILE, len(queries))), k, exclude_self)
        for start in range(0, len(queries), _TILE)
    ]
    similarities, indices = (torch.cat(parts).numpy() for parts in zip(*found, strict=True))
    return similarities, indices


def _search_window(queries: Tensor, gallery: Tensor, rows: slice, k: int, exclude_self: bool) -> tuple[Tensor, Tensor]:
    similarities = queries.new_empty(rows.stop - rows.start, 0)
    indices = similarities.to(torch.int64)
    for start in range(0, len(gallery), _TILE):
        columns = torch.arange(start, min(start + _TILE, len(gallery)), device=gallery.device)
        block = queries[rows] @ gallery[start : start + _TILE].T
        if exclude_self:
            block.diagonal(rows.start - start).fill_(-torch.inf)
        similarities = torch.cat([similarities, block], dim=1)
        indices = torch.cat([indices, columns.expand(len(block), -1)], dim=1)
        similarities, kept = similarities.topk(min(k, similarities.shape[1]))
        indices = indices.gather(1, kept)
    return similarities.cpu(), indices.cpu()
