"""Retrieval metrics of a model on one split: what a trial is judged by, and what `see-tune evaluate` prints."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from see_tune.data.loading import Loader
from see_tune.data.splits import Split, split_table
from see_tune.data.table import Classes, ImageTable, classes_of
from see_tune.data.transforms import Preprocessing
from see_tune.errors import EvaluationError
from see_tune.evaluation import rank_queries, summarize_ranks
from see_tune.evaluation.embed import embed
from see_tune.evaluation.metrics import normalized_mutual_information
from see_tune.home import Home
from see_tune.looks import Look, count_look
from see_tune.models import EmbeddingModel
from see_tune.spec.models import TrialSpec
from see_tune.training.parts import amp_dtype, make_loader, open_table, pick_device


@dataclass(frozen=True)
class Measured:
    """What was found on one split.

    metrics: what `evaluate_embeddings` returns, and ``embedding_variance``.
    labels: (Q,) the class of each query. best_positive_rank: (Q,), 0 where a query has no positive.
    measured_on: the dataset, and the classes of the queries.
    """

    metrics: dict[str, float]
    labels: NDArray[np.int64]
    best_positive_rank: NDArray[np.int64]
    measured_on: Classes


def measure(
    model: nn.Module,
    loader: Loader,
    table: ImageTable,
    split: Split,
    *,
    ks: Sequence[int],
    batch_size: int,
    device: torch.device,
    amp_dtype: torch.dtype | None = None,
    nmi: bool = False,
) -> Measured:
    """Retrieval on the split's queries (and gallery).

    ks: the k of Recall@k. batch_size: images embedded at a time; it changes no number.
    nmi: also ``nmi``, between the classes and k-means clusters of all these images; minutes for a large split.

    Raises:
        EvaluationError: the embeddings are not finite.
    """

    def embedded(rows: NDArray[np.int64]) -> Tensor:
        return embed(model, loader.evaluate(rows, batch_size), device=device, amp_dtype=amp_dtype)

    queries, labels = embedded(split.query_rows), table.labels[split.query_rows]
    gallery, gallery_labels = None, None
    if split.gallery_rows is not None:
        gallery, gallery_labels = embedded(split.gallery_rows), table.labels[split.gallery_rows]
    variance = _variance(queries)
    ranks = rank_queries(queries, labels, gallery=gallery, gallery_labels=gallery_labels)
    metrics = summarize_ranks(ranks, ks) | {"embedding_variance": variance}
    if nmi:
        rows = queries if gallery is None else torch.cat([queries, gallery])
        classes = labels if gallery_labels is None else np.concatenate([labels, gallery_labels])
        metrics["nmi"] = normalized_mutual_information(rows, classes, seed=0)
    return Measured(metrics, labels, ranks.best_positive_rank, classes_of(table, split.query_rows))


def measure_trained(
    model: EmbeddingModel,
    spec: TrialSpec,
    preprocessing: Preprocessing,
    *,
    name: str,
    home: Home,
    device: str = "auto",
    threads: int = 1,
    nmi: bool = False,
) -> Measured:
    """`measure` of a trained model on the dataset and split of `spec`, as its own training would have measured it.

    A look at test classes is counted in `home`, under the model's `name`.

    Raises:
        UserError: the look cannot be counted.
        DatasetError: the dataset is not there, or not whole.
        EvaluationError: the embeddings are not finite.
    """
    torch.set_num_threads(threads)
    on = pick_device(device)
    table = open_table(spec, home, preprocessing, threads)
    split = split_table(table, **spec.split.model_dump())
    with make_loader(spec, table, preprocessing, model, threads) as loader:
        measured = measure(
            model.to(on),
            loader,
            table,
            split,
            ks=spec.ks,
            batch_size=spec.evaluate.batch_size,
            device=on,
            amp_dtype=amp_dtype(spec, on),
            nmi=nmi,
        )
    if spec.split.kind in ("test", "paper"):
        count_look(home, Look(measured.measured_on.fingerprint, "", name, spec.last_epoch, time.time()))
    return measured


def _variance(embeddings: Tensor) -> float:
    """Mean squared distance of (N, D) unit embeddings from their mean, in 0..1."""
    variance = 1 - float(embeddings.double().mean(0).square().sum())
    if not math.isfinite(variance):
        raise EvaluationError("embeddings are not finite. Lower train.optimizer.lr, or set train.amp: none")
    return variance
