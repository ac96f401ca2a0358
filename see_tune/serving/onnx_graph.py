"""A model as one ONNX graph: (B, S, S, 3) uint8 pixels -> (B, D) float32 unit embeddings, for any B.

The normalisation is part of the graph, so that a program in any language only resizes and crops. A graph that was written is
run by onnxruntime beside the model in torch, on a batch of another size than it was traced with, before anybody gets it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from see_tune.errors import ExportError, UserError
from see_tune.model_folder import StoredModel

_TOLERANCE = 1e-4
_INLINE_BYTES = 1_900_000_000  # a protobuf holds 2 GiB; the weights of larger models go into a file of their own
_TRACED_IMAGES, _CHECKED_IMAGES = 2, 3


def write_graph(stored: StoredModel, file: Path) -> None:
    """Write `stored` to `file`, with inputs "images" and outputs "embeddings".

    Raises:
        UserError: the packages of the extra `onnx` are not installed.
        ExportError: the backbone does something that ONNX has no word for, or the graph gives other embeddings than the model.
    """
    _require_packages()
    graph, parameters = _PixelsToEmbeddings(stored).eval(), stored.model.parameters()
    try:
        torch.onnx.export(
            graph,
            (_noise(stored, _TRACED_IMAGES),),
            str(file),
            input_names=["images"],
            output_names=["embeddings"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            external_data=sum(value.numel() * value.element_size() for value in parameters) > _INLINE_BYTES,
            verbose=False,
        )
        difference = _largest_difference(stored, file)
    except Exception as error:  # the exporter, onnxscript and onnxruntime each raise kinds of their own
        raise ExportError(
            f"{stored.spec.model.backbone} cannot be written as ONNX ({type(error).__name__}: {error}); "
            f"--format safetensors writes any backbone"
        ) from error
    if not difference <= _TOLERANCE:
        raise ExportError(
            f"the ONNX graph of {stored.spec.model.backbone} differs from the model by {difference:.1e} in an embedding, "
            f"more than {_TOLERANCE:.0e}: nothing was written; --format safetensors writes the model itself"
        )


class _PixelsToEmbeddings(nn.Module):
    """`Preprocessing.normalise`, with its constants as buffers, and the model."""

    scale: Tensor
    shift: Tensor

    def __init__(self, stored: StoredModel) -> None:
        super().__init__()
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (stored.preprocessing.mean, stored.preprocessing.std))
        self.register_buffer("scale", 1 / (255 * std))
        self.register_buffer("shift", mean / std)
        self.model = stored.model

    def forward(self, images: Tensor) -> Tensor:
        """(B, S, S, 3) uint8 -> (B, D)"""
        embeddings: Tensor = self.model(images.permute(0, 3, 1, 2).float() * self.scale - self.shift)
        return embeddings


def _require_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"--format onnx needs {error.name}, which is not installed; install the extra: pip install 'see-tune[onnx]', "
            f"or write --format safetensors, which needs nothing more"
        ) from error


def _largest_difference(stored: StoredModel, file: Path) -> float:
    """Between graph and model, over all numbers of some embeddings of noise."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    images = _noise(stored, _CHECKED_IMAGES)
    (found,) = session.run(["embeddings"], {"images": images.numpy()})
    with torch.inference_mode():
        expected = stored.model(stored.preprocessing.normalise(images)).numpy()
    return float(np.abs(found - expected).max())


def _noise(stored: StoredModel, images: int) -> Tensor:
    """(B, S, S, 3) uint8, the same at each call."""
    side = stored.preprocessing.image_size
    return torch.randint(0, 256, (images, side, side, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
