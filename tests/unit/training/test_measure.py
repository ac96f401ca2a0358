"""A model's retrieval on a split."""

from __future__ import annotations

import pytest
import torch

from see_tune.errors import EvaluationError
from see_tune.training.measure import _variance


def test_embeddings_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(EvaluationError, match="not finite"):
        _variance(torch.full((4, 2), torch.nan))


def test_variance_is_nothing_where_all_are_the_same_and_one_where_they_cancel() -> None:
    same = torch.tensor([[1.0, 0.0]] * 4)
    assert _variance(same) == 0
    assert _variance(torch.cat([same, -same])) == 1
