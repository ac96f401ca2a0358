"""A trained model as a folder that is the same everywhere: in a study, in the registry, under an export.

    <folder>/
    ├── model.safetensors    the weights, and nothing that a loader could execute
    └── model.json           how to build it: the TrialSpec it was trained by, and its Preprocessing; what it was trained on

The network is built anew from the spec (without fetching anything) and the weights are put into it, so a folder outlives
the process, the machine and the device that wrote it. Used by training's end, the registered pyfunc, serving and exports.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_model
from torch import nn

from see_tune.data.table import Classes
from see_tune.data.transforms import Preprocessing
from see_tune.errors import WeightsError
from see_tune.models import EmbeddingModel, build_model, weights_bytes
from see_tune.spec.models import TrialSpec

WEIGHTS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"

_FORMAT = 1
_BATCH_IMAGES = 64


@dataclass(frozen=True)
class StoredModel:
    """A model read from its folder, in evaluation mode, on the CPU or where it was moved to.

    trained_on: its dataset and training classes; None where the folder does not say.
    """

    model: EmbeddingModel
    preprocessing: Preprocessing
    spec: TrialSpec
    trained_on: Classes | None = None

    def embed(self, images: Iterable[Image.Image]) -> NDArray[np.float32]:
        """RGB images of any sizes -> (N, D) float32 unit embeddings, in order; read lazily, a batch at a time."""
        device = next(self.model.parameters()).device
        embeddings = [np.empty((0, self.spec.model.embedding_dim), np.float32)]
        with torch.inference_mode():
            for batch in _batches(images):
                pixels = torch.from_numpy(np.stack([self.preprocessing.evaluate(image) for image in batch]))  # (B, S, S, 3) uint8
                embeddings.append(self.model(self.preprocessing.normalise(pixels.to(device))).float().cpu().numpy())
        return np.concatenate(embeddings)


def write_model_folder(
    folder: Path, model: nn.Module, spec_json: str, preprocessing: Preprocessing, trained_on: Classes | None = None
) -> Path:
    """Write `model` and how to build it; an existing folder's model is replaced.

    model: on any device. spec_json: the TrialSpec it was built and trained by, as JSON.
    The description is written last and in one step: a folder with a description has its weights.
    """
    spec = TrialSpec.model_validate_json(spec_json)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DESCRIPTION_FILE).unlink(missing_ok=True)
    (folder / WEIGHTS_FILE).write_bytes(weights_bytes(model))
    description = {
        "format": _FORMAT,
        # The path to the pictures is no part of a model, and nobody else's business.
        "trial": spec.model_dump(mode="json", by_alias=True, exclude={"dataset": {"root"}}),
        "preprocessing": asdict(preprocessing),
        "trained_on": trained_on.to_plain() if trained_on else None,
    }
    draft = folder / f"{DESCRIPTION_FILE}.part"
    draft.write_text(json.dumps(description, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    draft.replace(folder / DESCRIPTION_FILE)
    return folder


def load_model_folder(folder: Path) -> StoredModel:
    """Build the model of a folder that `write_model_folder` wrote, in evaluation mode, on the CPU.

    Raises:
        WeightsError: a file is missing, is of another format, or the weights do not fit the description.
    """
    try:
        description = json.loads((folder / DESCRIPTION_FILE).read_text(encoding="utf-8"))
        if description["format"] != _FORMAT:
            raise WeightsError(f"{folder} has format {description['format']}; this see-tune reads {_FORMAT}: update see-tune")
        spec = TrialSpec.model_validate_json(json.dumps(description["trial"]))
        preprocessing = _read_preprocessing(description["preprocessing"])
        trained_on = Classes.from_plain(kept) if (kept := description.get("trained_on")) else None
        model = build_model(
            backbone=spec.model.backbone,
            weights="none",
            embedding_dim=spec.model.embedding_dim,
            pooling=spec.model.pooling,
            layer_norm=spec.model.layer_norm,
            freeze_bn=spec.model.freeze_bn,
            freeze_patch_embed=spec.model.freeze_patch_embed,
            image_size=preprocessing.image_size,
        )
        load_model(model, str(folder / WEIGHTS_FILE), strict=True)
    except (OSError, KeyError, TypeError, AttributeError, ValueError, ValidationError, RuntimeError, SafetensorError) as error:
        raise WeightsError(
            f"{folder} holds no readable model: {type(error).__name__}: {error}; "
            f"it must have {DESCRIPTION_FILE} and the {WEIGHTS_FILE} that was written with it: write or fetch the folder again"
        ) from error
    return StoredModel(model.eval(), preprocessing, spec, trained_on)


def _read_preprocessing(values: dict[str, object]) -> Preprocessing:
    return Preprocessing(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})  # type: ignore[arg-type]


def _batches(images: Iterable[Image.Image]) -> Iterator[list[Image.Image]]:
    iterator = iter(images)
    while batch := list(islice(iterator, _BATCH_IMAGES)):
        yield batch
