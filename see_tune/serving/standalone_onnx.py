"""Embed images with an exported ONNX model. Needs onnxruntime, numpy and Pillow; neither torch nor see-tune.

    python embed.py OUT.npy IMAGE...                         (N, D) float32, rows of norm 1

    from embed import load_embedder
    embedder = load_embedder("path/to/the/export")
    embedder.embed(["car.jpg", "other.jpg"])

This file is copied into every ONNX export. Beside it lie model.onnx, from (B, S, S, 3) uint8 pixels to unit embeddings with the
normalisation inside, and model.json, how a picture becomes those pixels.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image, ImageOps

_BATCH_IMAGES = 64
_ERRORS_ALONE = 3  # of what onnxruntime logs on stderr


class ImageEmbedder:
    """A network with its preprocessing."""

    def __init__(self, session: onnxruntime.InferenceSession, preprocessing: Mapping[str, Any]) -> None:
        self.session = session
        self.preprocessing = preprocessing

    def embed(self, images: Sequence[str | Path | Image.Image]) -> NDArray[np.float32]:
        """Paths or PIL images -> (N, D) float32, in order."""
        rows = [np.empty((0, self.session.get_outputs()[0].shape[1]), np.float32)]
        for start in range(0, len(images), _BATCH_IMAGES):
            batch = np.stack([self.prepare(image) for image in images[start : start + _BATCH_IMAGES]])
            rows += self.session.run(["embeddings"], {"images": batch})
        return np.concatenate(rows)

    def prepare(self, image: str | Path | Image.Image) -> NDArray[np.uint8]:
        """A path or a PIL image -> (S, S, 3): upright RGB, shorter side resized, centre crop."""
        side, crop = self.preprocessing["resize_size"], self.preprocessing["image_size"]
        picture = _to_rgb(image if isinstance(image, Image.Image) else ImageOps.exif_transpose(Image.open(image)))
        width, height = picture.size
        size = (side, max(side, side * height // width)) if width <= height else (max(side, side * width // height), side)
        if size != picture.size:
            picture = picture.resize(size, Image.Resampling[self.preprocessing["interpolation"].upper()])
        left, top = (round((length - crop) / 2) for length in picture.size)
        return np.asarray(picture.crop((left, top, left + crop, top + crop)))


def load_embedder(folder: str | Path, providers: Sequence[str] = ("CPUExecutionProvider",)) -> ImageEmbedder:
    """The embedder of an export's folder. providers: where onnxruntime computes, e.g. ("CUDAExecutionProvider",)."""
    description = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ALONE
    session = onnxruntime.InferenceSession(str(Path(folder) / "model.onnx"), options, providers=list(providers))
    return ImageEmbedder(session, description["preprocessing"])


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey
        image = Image.fromarray((np.asarray(image, np.int64).clip(0, 65535) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python embed.py OUT.npy IMAGE...")
    np.save(sys.argv[1], load_embedder(Path(__file__).resolve().parent).embed(sys.argv[2:]))
