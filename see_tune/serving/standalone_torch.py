"""Embed images with an exported model. Needs torch, timm, safetensors, numpy and Pillow; not see-tune.

    python embed.py OUT.npy IMAGE...                         (N, D) float32, rows of norm 1

    from embed import load_embedder
    embedder = load_embedder("path/to/the/export")
    embedder.embed(["car.jpg", "other.jpg"])

This file is copied into every export. Beside it lie model.safetensors, the weights, and model.json, how to build the network
and how its images are prepared; nothing in them is executed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

_BATCH_IMAGES = 64


class Embedder(nn.Module):
    """backbone -> pooling -> LayerNorm without affine -> linear -> L2 norm. layout: model.json's "network"."""

    def __init__(self, layout: Mapping[str, Any], image_size: int) -> None:
        super().__init__()
        self.layout = layout
        self.backbone: Any = _build_backbone(layout["backbone"], image_size)
        if layout["pooling"] == "gem":
            self.pool = nn.ParameterDict({"power": nn.Parameter(torch.tensor(3.0))})
        features = layout["features"]
        self.norm = nn.LayerNorm(features, elementwise_affine=False) if layout["layer_norm"] else nn.Identity()
        self.linear = nn.Linear(features, layout["embedding_dim"])

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) normalised -> (B, D) of norm 1."""
        pooled = self._pool(self.backbone.forward_features(images))
        return F.normalize(self.linear(self.norm(pooled)).float())

    def _pool(self, features: Tensor) -> Tensor:
        layout = self.layout
        if features.ndim == 2:
            return features
        if layout["pooling"] == "token":
            return features[:, : layout["class_tokens"]].mean(1)
        if features.ndim == 3:
            places = features[:, layout["prefix_tokens"] :]
        else:
            places = features.flatten(1, 2) if layout["channels_last"] else features.flatten(2).transpose(1, 2)
        if layout["pooling"] == "max":
            return places.amax(1)
        if layout["pooling"] == "avg+max":
            return places.mean(1) + places.amax(1)
        if layout["pooling"] == "gem":
            power = self.pool["power"]
            return places.float().clamp(min=1e-6).pow(power).mean(1).pow(1 / power)
        return places.mean(1)


class ImageEmbedder:
    """A network with its preprocessing."""

    def __init__(self, network: Embedder, preprocessing: Mapping[str, Any], device: str = "cpu") -> None:
        self.network = network.eval().to(device)
        self.preprocessing = preprocessing
        self.device = device

    def embed(self, images: Sequence[str | Path | Image.Image]) -> NDArray[np.float32]:
        """Paths or PIL images -> (N, D) float32, in order."""
        rows = [np.empty((0, self.network.layout["embedding_dim"]), np.float32)]
        with torch.inference_mode():
            for start in range(0, len(images), _BATCH_IMAGES):
                batch = torch.stack([self.prepare(image) for image in images[start : start + _BATCH_IMAGES]])
                rows.append(self.network(batch.to(self.device)).cpu().numpy())
        return np.concatenate(rows)

    def prepare(self, image: str | Path | Image.Image) -> Tensor:
        """A path or a PIL image -> (3, S, S): upright RGB, shorter side resized, centre crop, normalised."""
        side, crop = self.preprocessing["resize_size"], self.preprocessing["image_size"]
        picture = _to_rgb(image if isinstance(image, Image.Image) else ImageOps.exif_transpose(Image.open(image)))
        width, height = picture.size
        size = (side, max(side, side * height // width)) if width <= height else (max(side, side * width // height), side)
        if size != picture.size:
            picture = picture.resize(size, Image.Resampling[self.preprocessing["interpolation"].upper()])
        left, top = (round((length - crop) / 2) for length in picture.size)
        pixels = torch.from_numpy(np.asarray(picture.crop((left, top, left + crop, top + crop))).copy()).permute(2, 0, 1).float()
        mean, std = (torch.tensor(self.preprocessing[name]).view(3, 1, 1) for name in ("mean", "std"))
        return pixels * (1 / (255 * std)) - mean / std


def load_embedder(folder: str | Path, device: str = "cpu") -> ImageEmbedder:
    """The embedder of an export's folder."""
    description = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
    network = Embedder(description["network"], description["preprocessing"]["image_size"])
    network.load_state_dict(load_file(str(Path(folder) / "model.safetensors")))
    return ImageEmbedder(network, description["preprocessing"], device)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey
        image = Image.fromarray((np.asarray(image, np.int64).clip(0, 65535) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _build_backbone(name: str, image_size: int) -> Any:
    if name == "glyphnet":
        return _GlyphNet()
    backbone = timm.create_model(name, num_classes=0)
    if resize := getattr(backbone, "set_input_size", None):
        resize(img_size=(image_size, image_size))
    return backbone


class _GlyphNet(nn.Module):
    """The one backbone that is not timm's: see-tune's own for 32 x 32 glyphs."""

    def __init__(self) -> None:
        super().__init__()
        shapes = [(3, 32, 5, 3), (32, 64, 3, 2), (64, 128, 3, 2), (128, 128, 3, 1)]
        self.features = nn.Sequential(*(_convolution(*shape) for shape in shapes))

    def forward_features(self, images: Tensor) -> Tensor:
        features: Tensor = self.features(images)
        return features


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: python embed.py OUT.npy IMAGE...")
    np.save(sys.argv[1], load_embedder(Path(__file__).resolve().parent).embed(sys.argv[2:]))
