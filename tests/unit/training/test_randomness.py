"""see_tune.training.randomness"""

import io
import random

import numpy as np
import torch

from see_tune.training.randomness import capture_random, restore_random

CPU = torch.device("cpu")


def draw() -> tuple[float, float, float]:
    return torch.rand(1).item(), random.random(), float(np.random.rand())


def test_every_stream_goes_on_where_it_was_taken_down() -> None:
    draw()
    state = capture_random(CPU)
    expected = [draw() for _ in range(3)]

    restore_random(state, CPU)

    assert [draw() for _ in range(3)] == expected


def test_the_state_passes_through_a_file_that_holds_no_code() -> None:
    state, buffer = capture_random(CPU), io.BytesIO()
    expected = draw()
    torch.save(state, buffer)
    buffer.seek(0)

    restore_random(torch.load(buffer, weights_only=True), CPU)

    assert draw() == expected
