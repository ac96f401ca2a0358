"""A folder of small pictures that can be told apart, and specs that train on it in a moment."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from see_tune.home import Home
from see_tune.spec.models import TrialSpec
from see_tune.training.parts import make_loss, make_model, make_preprocessing, make_state
from see_tune.training.state import TrainingState

BASE = {
    "dataset": {"name": "folder"},
    "data": {"crop_scale_min": 0.6, "flip": False, "workers": 0},
    "model": {"backbone": "glyphnet", "weights": "none", "embedding_dim": 8, "freeze_patch_embed": False},
    "loss": {"name": "nsoftmax"},
    "see": {"n_aug": 4},
    "train": {
        "epochs": 3,
        "batch_size": 16,
        "amp": "none",
        "freeze_backbone_epochs": 0,
        "optimizer": {"lr": 1e-3, "lr_at_batch": None, "eps": 1e-8, "proxies_lr_scale": 10.0},
    },
}


def build_spec(**keys: object) -> TrialSpec:
    """A spec from dotted keys with `__` for the dot: build_spec(train__epochs=2)."""
    values = json.loads(json.dumps(BASE))
    for key, value in keys.items():
        *path, name = key.split("__")
        block = values
        for part in path:
            block = block.setdefault(part, {})
        block[name] = value
    return TrialSpec.model_validate_json(json.dumps(values))


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ with 10 classes of 6 pictures, test/ with 4 more; a class is a colour with noise on it."""
    root = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number in range(14):
        folder = root / ("train" if number < 10 else "test") / f"class{number:02d}"
        folder.mkdir(parents=True)
        colour = rng.integers(0, 255, 3)
        for image in range(6):
            noisy = np.clip(colour + rng.normal(0, 30, (32, 32, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(folder / f"{image}.png")
    return root


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def spec_of(pictures: Path) -> Callable[..., TrialSpec]:
    """A spec that trains on the pictures."""
    return lambda **keys: build_spec(dataset__root=str(pictures), **keys)


@pytest.fixture
def state_of() -> Callable[..., TrainingState]:
    """A training of five classes at its start, on the CPU or another device, without a dataset."""

    def build(device: str = "cpu", **keys: object) -> TrainingState:
        spec = build_spec(**keys)
        model = make_model(spec, make_preprocessing(spec), weights="none")
        return make_state(spec, model, make_loss(spec, 5), torch.device(device))

    return build
