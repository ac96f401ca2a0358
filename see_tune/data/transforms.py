"""File -> upright RGB image -> crop -> normalised tensor.

Training: RandomResizedCrop (area `crop_scale_min`..1, ratio 3/4..4/3) and horizontal flip. Evaluation: shorter side to
`resize_size`, centre crop. What is random is computed from (seed, epoch, row, draw) by a counter-based generator, so an
image is the same whichever worker makes it and however many there are.

Crops stay uint8 until the batch is whole: a quarter of the bytes between processes, and one normalisation a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

CROP_RATIO = (3 / 4, 4 / 3)
CROP_TRIES = 10
_RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Preprocessing:
    """How a backbone wants its images.

    image_size: side of the square crop, pixels.
    resize_size: shorter side before the centre crop of the evaluation, at least image_size.
    mean, std: of the normalisation, per RGB channel, of values in 0..1.
    interpolation: bicubic or bilinear, both antialiased.
    """

    image_size: int = 224
    resize_size: int = 256
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        if self.interpolation not in _RESAMPLING:
            raise ValueError(f"interpolation {self.interpolation!r} is none of {', '.join(_RESAMPLING)}")
        if not 0 < self.image_size <= self.resize_size:
            raise ValueError(f"resize_size {self.resize_size} is smaller than image_size {self.image_size}: nothing to crop from")

    @property
    def resampling(self) -> Image.Resampling:
        return _RESAMPLING[self.interpolation]

    def evaluate(self, image: Image.Image) -> NDArray[np.uint8]:
        """(S, S, 3) uint8: shorter side to `resize_size`, centre crop of S = `image_size`."""
        image = resize_shorter(image, self.resize_size, self.resampling)
        left, top = (round((side - self.image_size) / 2) for side in image.size)
        return np.asarray(image.crop((left, top, left + self.image_size, top + self.image_size)))

    def crop(self, image: Image.Image, box: tuple[float, float, float, float], *, flip: bool) -> NDArray[np.uint8]:
        """(S, S, 3) uint8: `box` (left, top, right, bottom in pixels) scaled to S = `image_size`, mirrored where `flip`."""
        crop = np.asarray(image.resize((self.image_size, self.image_size), self.resampling, box=box))
        return crop[:, ::-1] if flip else crop

    def crop_decoded(self, pixels: NDArray[np.uint8], box: tuple[float, float, float, float], *, flip: bool) -> NDArray[np.uint8]:
        """`crop` of (H, W, 3) pixels that are decoded already, in a third of Pillow's time.

        The box is widened to whole pixels, and torch's vectorised resizing of bytes stays within 2 of 255 levels of Pillow's.
        """
        left, top, right, bottom = math.floor(box[0]), math.floor(box[1]), math.ceil(box[2]), math.ceil(box[3])
        cut = torch.from_numpy(pixels[top:bottom, left:right].copy()).permute(2, 0, 1)[None]
        size = (self.image_size, self.image_size)
        crop = F.interpolate(cut, size, mode=self.interpolation, antialias=True)[0].permute(1, 2, 0).numpy()
        return crop[:, ::-1] if flip else crop

    def normalise(self, images: Tensor) -> Tensor:
        """(B, S, S, 3) uint8 -> (B, 3, S, S) float32, contiguous, on the same device."""
        mean = torch.tensor(self.mean, dtype=torch.float32, device=images.device).view(3, 1, 1)
        std = torch.tensor(self.std, dtype=torch.float32, device=images.device).view(3, 1, 1)
        floats = images.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return floats.mul_(1 / (255 * std)).sub_(mean / std)

    def __call__(self, image: Image.Image) -> Tensor:
        """(3, S, S) float32: an image as it is evaluated and served."""
        return self.normalise(torch.from_numpy(self.evaluate(image).copy()).unsqueeze(0))[0]


def resize_shorter(image: Image.Image, side: int, resampling: Image.Resampling) -> Image.Image:
    """The image with its shorter side at `side` pixels, its proportions kept."""
    size = resized_size(image.size, side)
    return image if size == image.size else image.resize(size, resampling)


def resized_size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """(width, height) after the shorter side became `side`; the longer one is rounded down, as torchvision does."""
    width, height = size
    return (side, max(side, side * height // width)) if width <= height else (max(side, side * width // height), side)


def uniforms(seed: int, epoch: int, rows: NDArray[np.int64], draws: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """(B, count) numbers in [0, 1), a pure function of (seed, epoch, row, draw, column).

    A counter-based generator: SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014) chained over the parts of the counter.

    rows: (B,) the images. draws: (B,) how often each was drawn before in this epoch.
    """
    state = _mix(np.full(len(rows), seed % 2**64, np.uint64))
    for part in (np.full(len(rows), epoch), rows, draws):
        state = _mix(state ^ part.astype(np.uint64))
    columns = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (_mix(state[:, None] + columns) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


CROP_UNIFORMS = 2 * CROP_TRIES + 3


def random_crop(
    uniform: NDArray[np.float64], width: int, height: int, scale_min: float
) -> tuple[tuple[float, float, float, float], bool]:
    """RandomResizedCrop's box (left, top, right, bottom) and whether the coin for the flip fell so.

    uniform: (CROP_UNIFORMS,) numbers in [0, 1): an area and a ratio for each try, two for the place, one for the flip.
    The sides and the place are not rounded to pixels. When no try fits, the largest centre crop of an allowed ratio is taken.
    """
    across, down, coin = uniform[2 * CROP_TRIES :].tolist()
    crop_width, crop_height = _fitting_crop(uniform[: 2 * CROP_TRIES].tolist(), width, height, scale_min)
    if crop_width == 0:
        crop_width, crop_height = min(width, height * CROP_RATIO[1]), min(height, width / CROP_RATIO[0])
        across = down = 0.5
    left, top = across * (width - crop_width), down * (height - crop_height)
    # Clamped, because a rounded sum one ulp past the image's edge is an error in Pillow.
    return (left, top, min(left + crop_width, width), min(top + crop_height, height)), coin < 0.5


def _fitting_crop(uniform: list[float], width: int, height: int, scale_min: float) -> tuple[float, float]:
    low, high = math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1])
    for area_draw, ratio_draw in zip(uniform[::2], uniform[1::2], strict=True):
        area = width * height * (scale_min + (1 - scale_min) * area_draw)
        ratio = math.exp(low + (high - low) * ratio_draw)
        crop_width, crop_height = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if crop_width <= width and crop_height <= height:
            return crop_width, crop_height
    return 0.0, 0.0
