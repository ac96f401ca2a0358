"""see_tune.training.step"""

import pytest
import torch
from torch import Tensor, nn

from see_tune.training.step import backward


def dropout_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()


def batch_loss(embeddings: Tensor) -> Tensor:
    """A loss that is no sum over images: every pair of the batch is in it."""
    return (embeddings @ embeddings.T).tanh().square().mean()


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("micro_batch", [1, 3, 4, 9])
def test_micro_batches_give_the_gradient_of_the_whole_batch(micro_batch: int) -> None:
    images = torch.randn(10, 3, 2, 2, dtype=torch.float64)
    whole, chunked = dropout_model().eval(), dropout_model().eval()

    expected = backward(whole, batch_loss, images, micro_batch=10, scale=lambda loss: loss)
    loss = backward(chunked, batch_loss, images, micro_batch=micro_batch, scale=lambda loss: loss)

    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients(chunked), gradients(whole), rtol=1e-12, atol=1e-14)


def test_the_second_pass_has_the_dropout_of_the_first() -> None:
    images = torch.randn(10, 3, 2, 2, dtype=torch.float64)
    oracle, chunked = dropout_model(), dropout_model()
    torch.manual_seed(1)
    batch_loss(torch.cat([oracle(chunk) for chunk in images.split(4)])).backward()  # one graph over all chunks

    torch.manual_seed(1)
    backward(chunked, batch_loss, images, micro_batch=4, scale=lambda loss: loss)

    torch.testing.assert_close(gradients(chunked), gradients(oracle), rtol=1e-12, atol=1e-14)


def test_micro_batches_draw_each_random_number_once() -> None:
    images = torch.randn(10, 3, 2, 2, dtype=torch.float64)
    model = dropout_model()
    torch.manual_seed(1)
    for chunk in images.split(4):
        model(chunk)
    after_one_pass = torch.rand(1)

    torch.manual_seed(1)
    backward(model, batch_loss, images, micro_batch=4, scale=lambda loss: loss)

    assert torch.rand(1) == after_one_pass


def test_the_scale_reaches_the_gradients_and_not_the_returned_loss() -> None:
    images = torch.randn(6, 3, 2, 2, dtype=torch.float64)
    plain, scaled = dropout_model().eval(), dropout_model().eval()

    loss = backward(plain, batch_loss, images, micro_batch=4, scale=lambda loss: loss)
    same_loss = backward(scaled, batch_loss, images, micro_batch=4, scale=lambda loss: 8 * loss)

    assert loss == same_loss
    torch.testing.assert_close(gradients(scaled), [8 * gradient for gradient in gradients(plain)])
