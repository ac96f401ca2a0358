"""Fixtures of several rooms."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained model as a study writes it."""
    from see_tune.data.transforms import Preprocessing
    from see_tune.model_folder import write_model_folder
    from see_tune.models import build_model
    from see_tune.spec.models import TrialSpec

    spec = TrialSpec.model_validate(
        {
            "dataset": {"name": "glyphs", "root": "/home/someone/pictures"},
            "model": {"backbone": "glyphnet", "weights": "none", "embedding_dim": 16},
        }
    )
    model = build_model(backbone="glyphnet", embedding_dim=16, image_size=32, seed=3)
    folder = tmp_path_factory.mktemp("study") / "final"
    return write_model_folder(folder, model, spec.model_dump_json(by_alias=True), Preprocessing(32, 36))
