"""The public door: its keys, what it leaves out, what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from see_tune.errors import EvaluationError
from see_tune.evaluation import evaluate_embeddings, rank_queries, summarize_ranks


def draw_clusters(rows: int = 600, classes: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % classes
    centres = torch.randn(classes, 32, generator=generator)
    return centres[labels] + 1.5 * torch.randn(rows, 32, generator=generator), labels


def test_the_metrics_have_these_names() -> None:
    metrics = evaluate_embeddings(*draw_clusters(), ks=(1, 10))
    assert list(metrics) == ["recall_at_1", "recall_at_10", "map_at_r", "r_precision", "queries", "queries_without_positive"]
    assert all(isinstance(value, float) for value in metrics.values())


def test_without_r_the_recalls_are_the_same() -> None:
    embeddings, labels = draw_clusters()
    metrics = evaluate_embeddings(embeddings, labels)
    recalls = evaluate_embeddings(embeddings, labels, within_r=False)
    assert recalls.items() <= metrics.items()
    assert metrics.keys() - recalls.keys() == {"map_at_r", "r_precision"}


def test_the_numbers_agree_with_pytorch_metric_learning() -> None:
    embeddings, labels = draw_clusters()
    calculator = AccuracyCalculator(
        include=("precision_at_1", "mean_average_precision_at_r", "r_precision"), device=torch.device("cpu")
    )
    theirs = calculator.get_accuracy(torch.nn.functional.normalize(embeddings), labels)
    ours = evaluate_embeddings(embeddings, labels, ks=(1,))
    assert ours["recall_at_1"] == pytest.approx(theirs["precision_at_1"], abs=1e-9)
    assert ours["map_at_r"] == pytest.approx(theirs["mean_average_precision_at_r"], abs=1e-6)
    assert ours["r_precision"] == pytest.approx(theirs["r_precision"], abs=1e-6)


def test_queries_without_a_positive_are_left_out_and_counted() -> None:
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    metrics = evaluate_embeddings(embeddings, ["a", "a", "alone"], ks=(1,))
    assert metrics["recall_at_1"] == metrics["map_at_r"] == metrics["r_precision"] == 1.0
    assert (metrics["queries"], metrics["queries_without_positive"]) == (2.0, 1.0)


def test_a_k_above_the_gallery_is_capped_and_said() -> None:
    embeddings, labels = draw_clusters(20, 4)
    metrics = evaluate_embeddings(embeddings, labels, ks=(1, 19, 1000))
    assert metrics["k_capped_at"] == 19.0
    assert metrics["recall_at_1000"] == metrics["recall_at_19"]
    assert "k_capped_at" not in evaluate_embeddings(embeddings, labels, ks=(1, 19))
    gallery = evaluate_embeddings(embeddings, labels, ks=(1, 1000), gallery=embeddings, gallery_labels=labels)
    assert gallery["k_capped_at"] == 20.0


def test_a_collapsed_model_scores_0() -> None:
    metrics = evaluate_embeddings(torch.ones(500, 8), np.arange(500) % 50, ks=(1, 100))
    assert metrics["recall_at_1"] == metrics["recall_at_100"] == metrics["map_at_r"] == metrics["r_precision"] == 0.0


def test_arrays_that_may_not_be_written_are_read(recwarn: pytest.WarningsRecorder) -> None:
    embeddings = draw_clusters()[0].numpy()
    embeddings.flags.writeable = False
    evaluate_embeddings(embeddings, draw_clusters()[1].numpy())
    assert not recwarn.list


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "1", None])
def test_k_is_a_whole_number_from_1(k: object) -> None:
    with pytest.raises(EvaluationError, match=f"k = {k} is no number of neighbours"):
        evaluate_embeddings(*draw_clusters(), ks=(1, k))  # type: ignore[arg-type]


def test_rows_and_arrays_mean_the_same() -> None:
    embeddings, labels = draw_clusters(60, 6)
    expected = evaluate_embeddings(embeddings, labels)
    assert evaluate_embeddings(embeddings.tolist(), labels.tolist()) == expected
    assert evaluate_embeddings(embeddings.numpy(), labels.numpy(), ks=np.array([1, 2, 4, 8])) == expected


def test_masked_embeddings_are_refused() -> None:
    embeddings, labels = draw_clusters(60, 6)
    masked = np.ma.masked_greater(embeddings.numpy(), 0)
    with pytest.raises(EvaluationError, match="embeddings have masked entries"):
        evaluate_embeddings(masked, labels)


def test_ranks_summarised_later_give_the_same_metrics() -> None:
    embeddings, labels = draw_clusters()
    assert summarize_ranks(rank_queries(embeddings, labels), (1, 2, 4, 8)) == evaluate_embeddings(embeddings, labels)


@pytest.mark.parametrize("ks", [1, "12", None, {1: 2}])
def test_ks_that_are_no_list_are_refused_with_what_is_valid(ks: object) -> None:
    with pytest.raises(EvaluationError, match=r"is no list of numbers of neighbours.*ks=\(1, 2, 4\)"):
        evaluate_embeddings(*draw_clusters(), ks=ks)  # type: ignore[arg-type]
