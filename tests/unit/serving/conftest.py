"""A model and a folder of pictures to look up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from see_tune.model_folder import StoredModel, load_model_folder


@pytest.fixture(scope="session")
def stored(model_folder: Path) -> StoredModel:
    return load_model_folder(model_folder)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Nine pictures in two folders, each of a colour and a size of its own."""
    root = tmp_path / "pictures"
    rng = np.random.default_rng(0)
    for number in range(9):
        file = root / ("a" if number < 5 else "b/c") / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(rng.integers(0, 255, 3) + rng.normal(0, 20, (40 + number, 50, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(file)
    return root
