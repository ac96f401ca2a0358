"""How good embeddings are at retrieval. `evaluate_embeddings` is the door; `ranking` does the work, `metrics` names it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from see_tune.errors import EvaluationError
from see_tune.evaluation.metrics import recall_at_k
from see_tune.evaluation.ranking import QueryRanks, rank_queries
from see_tune.evaluation.vectors import Embeddings

__all__ = ["QueryRanks", "evaluate_embeddings", "rank_queries", "summarize_ranks"]


def evaluate_embeddings(
    embeddings: Embeddings,
    labels: ArrayLike | Tensor,
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    gallery: Embeddings | None = None,
    gallery_labels: ArrayLike | Tensor | None = None,
    within_r: bool = True,
) -> dict[str, float]:
    """Recall@k, MAP@R and R-precision by cosine similarity, exact, with ties counted against the query.

    Args:
        embeddings: (N, D) tensor, array or rows of any floating type. They need not be of unit length.
        labels: (N,) integers, or strings.
        ks: the k of Recall@k, whole numbers; any number of them cost one pass.
        gallery: (G, D), where queries are looked up in a gallery of their own; None looks each row up among all others.
        gallery_labels: (G,) of the same kind as `labels`.
        within_r: False leaves out MAP@R and R-precision.

    Returns:
        ``recall_at_<k>`` for each k, ``map_at_r``, ``r_precision``: shares in 0..1, means over the queries that have a
        positive. ``queries``: how many those are; ``queries_without_positive``: how many were left out.
        ``k_capped_at`` is there only where a k exceeds the number of rows that a query is ranked against; it is that
        number, and the recall at such a k is the recall at it.

    Raises:
        EvaluationError: numbers that are not finite, shapes or kinds that do not agree, labels of several kinds or of none (None,
            NaN), masked entries, no query with a positive, a k that is no whole number from 1.

    >>> import numpy as np
    >>> metrics = evaluate_embeddings(np.eye(4)[[0, 0, 1, 2]], ["cat", "cat", "dog", "dog"], ks=[1, 3])
    >>> metrics["recall_at_1"], metrics["recall_at_3"]
    (0.5, 1.0)
    """
    _check_ks(ks)
    ranks = rank_queries(embeddings, labels, gallery=gallery, gallery_labels=gallery_labels, within_r=within_r)
    return summarize_ranks(ranks, ks)


def _check_ks(ks: Sequence[int]) -> None:
    if isinstance(ks, str) or not isinstance(ks, Sequence | np.ndarray):
        raise EvaluationError(f"ks = {ks!r} is no list of numbers of neighbours; valid are whole numbers from 1, as ks=(1, 2, 4)")
    wrong = [k for k in ks if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1]
    if wrong:
        raise EvaluationError(f"k = {wrong[0]} is no number of neighbours; valid are whole numbers from 1. Change the list of k.")


def summarize_ranks(ranks: QueryRanks, ks: Sequence[int]) -> dict[str, float]:
    """The dictionary of `evaluate_embeddings`, from ranks that are there already."""
    _check_ks(ks)
    counted = ranks.has_positive
    metrics = {f"recall_at_{k}": recall_at_k(ranks.best_positive_rank, k) for k in ks}
    if ranks.average_precision is not None and ranks.r_precision is not None:
        metrics["map_at_r"] = float(ranks.average_precision[counted].mean())
        metrics["r_precision"] = float(ranks.r_precision[counted].mean())
    metrics["queries"] = float(counted.sum())
    metrics["queries_without_positive"] = float((~counted).sum())
    if max(ks, default=0) > ranks.candidates:
        metrics["k_capped_at"] = float(ranks.candidates)
    return metrics
