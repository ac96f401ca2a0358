"""The code of every registered model: images -> unit embeddings, as MLflow's models-from-code.

MLflow copies this file into the model and runs the copy when the model is loaded, so nothing is pickled; see-tune itself
must be installed there. see-tune never imports it (that would import mlflow); registry.py hands MLflow its path.

    model = mlflow.pyfunc.load_model("models:/see-tune.cars196@champion")
    model.predict(["car.jpg", open("car.png", "rb").read(), array])        (N, D) float32, rows of norm 1

An image is a file path, a ``data:`` URI (how bytes travel in JSON), encoded bytes, or an (H, W, 3) uint8 array. One is given as
it is; several are a list, an array (N, H, W, 3), or the first column of a DataFrame. A served model takes ``{"inputs": [...]}``.
"""

import base64
import binascii
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel
from PIL import Image

from see_tune.data.pictures import open_rgb
from see_tune.errors import DatasetError
from see_tune.model_folder import load_model_folder

_DIMENSIONS = 3  # of an image: height, width, channels


class EmbeddingModel(PythonModel):  # type: ignore[misc]
    """What MLflow calls."""

    # MLflow's own check of the type hint below accepts lists alone; `predict` checks what it is given.
    _skip_type_hint_validation = True

    def load_context(self, context: Any) -> None:
        """Build the model from the folder inside the registered one, on the GPU where there is one."""
        self._stored = load_model_folder(Path(context.artifacts["model"]))
        self._stored.model.to("cuda" if torch.cuda.is_available() else "cpu")

    def predict(self, model_input: list[str | bytes | np.ndarray]) -> np.ndarray:
        """N images -> (N, D) float32 unit embeddings, one image (1, D). Raises DatasetError for what is no image."""
        return self._stored.embed(_image(item) for item in _items(model_input))


EmbeddingModel.predict._is_pyfunc = True  # type: ignore[attr-defined]  # and spares its advice to switch that check on


def _items(model_input: Any) -> list[Any]:
    if hasattr(model_input, "columns"):  # a DataFrame
        return list(model_input.iloc[:, 0]) if len(model_input.columns) else []
    single = isinstance(model_input, (str, bytes, Path)) or getattr(model_input, "ndim", None) == _DIMENSIONS
    return [model_input] if single else list(model_input)


def _image(item: Any) -> Image.Image:
    if isinstance(item, Path):
        return open_rgb(item)
    if isinstance(item, str) and not item.startswith("data:"):
        return open_rgb(Path(item))
    if isinstance(item, str):
        item = _decode_data_uri(item)
    if isinstance(item, bytes):
        return open_rgb(io.BytesIO(item))
    pixels = np.asarray(item)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype.kind not in "iu" or pixels.min() < 0 or pixels.max() > 255:
        raise DatasetError(
            f"an input of type {type(item).__name__}, shape {pixels.shape} and dtype {pixels.dtype} is no image; "
            f"give a file path, a data: URI, encoded bytes, or an (H, W, 3) uint8 array"
        )
    return Image.fromarray(pixels.astype(np.uint8))


def _decode_data_uri(uri: str) -> bytes:
    header, comma, payload = uri.partition(",")
    try:
        if not comma or not header.endswith(";base64"):
            raise binascii.Error("it does not begin with data:image/...;base64,")
        return base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise DatasetError(f"the URI {uri[:40]}... is no image: {error}; write data:image/png;base64, and the file") from error


set_model(EmbeddingModel())
