"""Embeddings in order, once each, and a model that is left as it was."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from see_tune.errors import EvaluationError
from see_tune.evaluation.embed import embed


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


def images(rows: int = 23) -> Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (7, 0), (100, 0), (5, 2)])
def test_rows_come_in_order_once_each_for_any_batching(batch_size: int, workers: int) -> None:
    model = make_model()
    expected = make_model().eval()(images()).detach()
    loader = DataLoader(list(images()), batch_size, num_workers=workers, multiprocessing_context="spawn" if workers else None)
    torch.testing.assert_close(embed(model, loader, device="cpu"), expected)


def test_the_mode_of_every_part_is_restored() -> None:
    model = make_model().train()
    model[1].eval()  # a frozen BatchNorm
    statistics = model[1].running_mean.clone()
    embed(model, [images()], device="cpu")
    assert [part.training for part in model] == [True, False, True, True]
    assert (model[1].running_mean == statistics).all()


def test_the_mode_is_restored_after_an_error() -> None:
    model = make_model().train()
    with pytest.raises(RuntimeError):
        embed(model, [torch.ones(2, 5)], device="cpu")
    assert all(part.training for part in model.modules())


def test_mixed_precision_still_returns_float32() -> None:
    exact = embed(make_model(), [images()], device="cpu")
    mixed = embed(make_model(), [images()], device="cpu", amp_dtype=torch.bfloat16)
    assert mixed.dtype == torch.float32
    assert not torch.equal(mixed, exact)
    torch.testing.assert_close(mixed, exact, atol=0.05, rtol=0.05)


def test_the_result_is_an_ordinary_tensor_without_gradient() -> None:
    rows = embed(make_model(), [images()], device="cpu")
    assert not rows.requires_grad
    assert not rows.is_inference()


def test_nothing_to_embed_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="0 batches"):
        embed(make_model(), [], device="cpu")
