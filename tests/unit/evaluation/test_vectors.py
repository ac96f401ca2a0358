"""What may be ranked, and how it becomes unit rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from see_tune.errors import EvaluationError
from see_tune.evaluation.vectors import as_matrix, full_precision, unit_rows


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_rows_of_any_length_become_unit_rows(scale: float) -> None:
    rows = unit_rows(scale * torch.tensor([[3.0, 4.0], [-1.0, 0.0]]))
    torch.testing.assert_close(rows, torch.tensor([[0.6, 0.8], [-1.0, 0.0]]))


def test_a_row_of_zeros_stays_zero() -> None:
    assert unit_rows(torch.zeros(2, 3)).tolist() == [[0.0] * 3] * 2


def test_rows_come_in_the_given_order_and_errors_name_the_original_row() -> None:
    matrix = torch.eye(3)
    order = torch.tensor([2, 0, 1])
    assert (unit_rows(matrix, order) == matrix[order]).all()
    matrix[1] = torch.nan
    with pytest.raises(EvaluationError, match="row 1 of the embeddings"):
        unit_rows(matrix, order)


def test_the_input_is_not_changed() -> None:
    matrix = torch.full((3, 2), 5.0)
    unit_rows(matrix)
    assert (matrix == 5.0).all()


@pytest.mark.parametrize(
    "embeddings",
    [
        torch.ones(3),
        torch.ones(0, 4),
        torch.ones(4, 0),
        torch.ones(2, 2, 2),
        torch.ones(2, 2, dtype=torch.int64),
        np.array([["a"]]),
    ],
)
def test_anything_but_rows_of_floats_is_refused(embeddings: torch.Tensor) -> None:
    with pytest.raises(EvaluationError, match="cannot be ranked"):
        as_matrix(embeddings)


def test_full_precision_ends_with_what_was_set_before() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with full_precision(torch.device("cpu")):
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.is_grad_enabled()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
