"""Recall@k, MAP@R, R-precision: pure functions of ranks; and NMI, which is one of clusters.

MAP@R and R-precision: Musgrave et al., "A Metric Learning Reality Check" (ECCV 2020), section 3.2.

Legend: Q queries, P positives, R the number of positives that a query has in the gallery.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from see_tune.evaluation.vectors import Embeddings, as_matrix, unit_rows

_KMEANS_STEPS = 20


def recall_at_k(best_positive_rank: NDArray[np.int64], k: int) -> float:
    """The share of queries whose best positive is among their k nearest; those without any positive (rank 0) are left out.

    Args:
        best_positive_rank: (Q,) from 1, 0 where a query has no positive. At least one is not 0.
        k: at least 1.

    >>> recall_at_k(np.array([1, 3, 0, 2]), 2)
    0.6666666666666666
    """
    ranks = best_positive_rank[best_positive_rank > 0]
    return float(np.mean(ranks <= k))


def precision_within_r(
    position: NDArray[np.int64], query: NDArray[np.int64], positives: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average precision and precision among each query's R nearest.

    Args:
        position: (P,) from 1, where a positive stands in its query's ranking; a query's positions ascend. Positives beyond
            position R may be absent: they count for nothing.
        query: (P,) ascending, whose positive it is.
        positives: (Q,) R of each query.

    Returns:
        (Q,) average precision at R and (Q,) R-precision, both 0 where R is 0.

    >>> precision_within_r(np.array([1, 3]), np.array([0, 0]), np.array([3]))
    (array([0.55555556]), array([0.66666667]))
    """
    counts = np.bincount(query, minlength=len(positives))
    first = np.repeat(np.cumsum(counts) - counts, counts)
    precision = (np.arange(len(query)) - first + 1) / position
    inside = position <= positives[query]
    r = np.maximum(positives, 1)
    total = np.bincount(query[inside], weights=precision[inside], minlength=len(positives))
    found = np.bincount(query[inside], minlength=len(positives))
    return total / r, found / r


def normalized_mutual_information(embeddings: Embeddings, labels: ArrayLike, seed: int) -> float:
    """NMI (arithmetic mean) between the classes and as many k-means clusters of the unit embeddings.

    Lloyd's algorithm from `seed`-drawn rows, at most 20 steps: N x D x C operations a step, minutes for a large test set.

    Args:
        embeddings: (N, D); normalised, as everywhere.
        labels: (N,) of any kind.

    Raises:
        EvaluationError: embeddings that are not finite or not (N, D).
    """
    from sklearn.cluster import KMeans  # a second of import, for a metric that few ask for
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import normalized_mutual_info_score

    rows = unit_rows(as_matrix(embeddings)).cpu().numpy()
    names, classes = np.unique(np.asarray(labels), return_inverse=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than classes: a low NMI says it
        clusters = KMeans(len(names), init="random", n_init=1, max_iter=_KMEANS_STEPS, random_state=seed).fit_predict(rows)
    return float(normalized_mutual_info_score(classes, clusters))
