"""Any image becomes upright RGB; crops are torchvision's, in distribution or to the last bit."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2

from see_tune.data.pictures import open_rgb, upright_size
from see_tune.data.transforms import CROP_UNIFORMS, Preprocessing, random_crop, resized_size, uniforms
from see_tune.errors import DatasetError

RED = np.full((6, 8, 3), (200, 30, 10), np.uint8)


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK", "YCbCr"])
def test_colour_modes_keep_their_colour(mode: str, tmp_path: Path) -> None:
    file = tmp_path / ("x.tif" if mode in {"CMYK", "YCbCr"} else "x.png")
    Image.fromarray(RED).convert(mode, palette=Image.Palette.ADAPTIVE).save(file)
    image = open_rgb(file)
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image).astype(int) - RED).max() <= 3


@pytest.mark.parametrize("mode", ["1", "L", "LA"])
def test_grey_modes_become_grey_rgb(mode: str, tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 255, np.uint8)).convert(mode).save(tmp_path / "x.png")
    assert np.array_equal(np.asarray(open_rgb(tmp_path / "x.png")), np.full((4, 4, 3), 255))


def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path: Path) -> None:
    image = Image.fromarray(RED).convert("P")
    image.save(tmp_path / "x.png", transparency=bytes([0, 128]))
    assert open_rgb(tmp_path / "x.png").mode == "RGB"


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(ending: str, tmp_path: Path) -> None:
    values = np.array([[0, 256, 32_768, 65_535]], np.uint16)
    Image.fromarray(values).save(tmp_path / f"x.{ending}")
    assert np.asarray(open_rgb(tmp_path / f"x.{ending}"))[0, :, 1].tolist() == [0, 1, 128, 255]


def test_exif_rotation_is_undone(tmp_path: Path) -> None:
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, :16] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned clockwise: the left half is on top
    Image.fromarray(pixels).save(tmp_path / "x.jpg", exif=exif)
    upright = np.asarray(open_rgb(tmp_path / "x.jpg"))
    assert upright.shape == (32, 16, 3)
    assert upright[:12].min() > 200
    assert upright[20:].max() < 50
    assert upright_size(tmp_path / "x.jpg") == (16, 32)


def test_a_stream_is_read_like_a_file() -> None:
    stream = io.BytesIO()
    Image.fromarray(RED).save(stream, "PNG")
    stream.seek(0)
    assert np.array_equal(np.asarray(open_rgb(stream)), RED)


def chunk(kind: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")


def empty_png(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds no pixels."""
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def truncated_jpeg() -> bytes:
    stream = io.BytesIO()
    noise(64, 64).save(stream, "JPEG")
    return stream.getvalue()[:600]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not decode"),
        (b"this is a text file", "does not decode"),
        (truncated_jpeg(), "does not decode"),
        (empty_png(100, 100), "does not decode"),
        (empty_png(30_000, 30_000), "refused, it may be a decompression bomb .*900000000 pixels"),
    ],
)
def test_what_does_not_decode_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(content)
    with pytest.raises(DatasetError, match=rf"bad\.jpg: {message}"):
        open_rgb(tmp_path / "bad.jpg")


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"gone\.jpg: no such image"):
        open_rgb(tmp_path / "gone.jpg")


@pytest.mark.parametrize("name", ["gone.jpg", "bad.jpg"])
def test_what_is_said_of_a_picture_fits_one_that_is_in_no_dataset(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"this is a text file")
    with pytest.raises(DatasetError) as caught:
        open_rgb(tmp_path / name)
    assert "dataset" not in str(caught.value)


@pytest.mark.parametrize("size", [(80, 60), (60, 80), (57, 123), (32, 32), (20, 31), (301, 40)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_evaluation_is_torchvisions_resize_and_centre_crop(size: tuple[int, int], interpolation: str) -> None:
    theirs = v2.Compose([v2.Resize(36, v2.InterpolationMode(interpolation)), v2.CenterCrop(32)])(noise(*size))
    assert np.array_equal(Preprocessing(32, 36, interpolation=interpolation).evaluate(noise(*size)), np.asarray(theirs))


def test_normalisation_is_torchvisions() -> None:
    preprocessing = Preprocessing(8, 8)
    floats = v2.functional.to_dtype(v2.functional.to_image(noise(8, 8)), scale=True)
    theirs = v2.Normalize(preprocessing.mean, preprocessing.std)(floats)
    ours = preprocessing(noise(8, 8))
    assert (ours.dtype, ours.is_contiguous()) == (torch.float32, True)
    torch.testing.assert_close(ours, torch.as_tensor(theirs), rtol=0, atol=1e-6)


def test_a_crop_of_whole_pixels_at_its_own_size_is_a_cut() -> None:
    image = noise(20, 20)
    cut = np.asarray(image)[3:13, 5:15]
    assert np.array_equal(Preprocessing(10, 10).crop(image, (5, 3, 15, 13), flip=False), cut)
    assert np.array_equal(Preprocessing(10, 10).crop(image, (5, 3, 15, 13), flip=True), cut[:, ::-1])


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("box", [(0, 0, 80, 60), (13, 5, 50, 41), (3, 2, 12, 12), (79, 59, 80, 60)])
def test_a_crop_of_decoded_pixels_is_pillows_within_two_levels(interpolation: str, box: tuple[int, int, int, int]) -> None:
    image = noise(80, 60)
    preprocessing = Preprocessing(32, 36, interpolation=interpolation)
    ours = preprocessing.crop_decoded(np.asarray(image), box, flip=False)
    pillows = preprocessing.crop(image.crop(box), (0, 0, box[2] - box[0], box[3] - box[1]), flip=False)
    assert np.abs(ours.astype(int) - pillows.astype(int)).max() <= 2
    assert np.array_equal(preprocessing.crop_decoded(np.asarray(image), box, flip=True), ours[:, ::-1])


def test_a_crop_of_decoded_pixels_is_widened_to_whole_pixels() -> None:
    pixels = np.asarray(noise(80, 60))
    preprocessing = Preprocessing(32, 36)
    fractional = preprocessing.crop_decoded(pixels, (13.7, 5.2, 50.4, 40.6), flip=False)
    assert np.array_equal(fractional, preprocessing.crop_decoded(pixels, (13, 5, 51, 41), flip=False))


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 500), st.integers(1, 500), st.floats(0.01, 1.0), st.integers(0, 2**31))
def test_random_crops_lie_inside_the_image(width: int, height: int, scale_min: float, seed: int) -> None:
    uniform = uniforms(seed, 0, np.array([1]), np.array([0]), CROP_UNIFORMS)[0]
    (left, top, right, bottom), _ = random_crop(uniform, width, height, scale_min)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


@pytest.mark.parametrize("size", [(100, 100), (200, 80), (300, 40)])
def test_random_crops_are_distributed_like_torchvisions(size: tuple[int, int]) -> None:
    count = 4_000
    drawn = uniforms(0, 0, np.arange(count), np.zeros(count, np.int64), CROP_UNIFORMS)
    boxes = np.array([random_crop(row, *size, 0.2)[0] for row in drawn])
    ours = np.stack([boxes[:, 0], boxes[:, 1], boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]])
    torch.manual_seed(0)
    blank = torch.empty(3, size[1], size[0])
    draw = v2.RandomResizedCrop(8, scale=(0.2, 1.0)).make_params
    params = [draw([blank]) for _ in range(count)]
    theirs = np.array([[param[key] for param in params] for key in ("left", "top", "width", "height")])
    assert np.abs(ours.mean(1) - theirs.mean(1)).max() < 0.02 * max(size)
    assert np.abs(ours.std(1) - theirs.std(1)).max() < 0.02 * max(size)


def test_uniforms_are_uniform_and_independent_of_the_batch_they_are_drawn_in() -> None:
    rows = np.arange(2_000)
    drawn = uniforms(7, 3, rows, np.zeros_like(rows), 5)
    assert np.array_equal(drawn[500:600], uniforms(7, 3, rows[500:600], np.zeros(100, np.int64), 5))
    assert np.abs(np.histogram(drawn, bins=10, range=(0, 1))[0] / drawn.size - 0.1).max() < 0.01
    assert np.abs(np.corrcoef(drawn.T) - np.eye(5)).max() < 0.1


@pytest.mark.parametrize("other", [(8, 3, 5, 0), (7, 4, 5, 0), (7, 3, 6, 0), (7, 3, 5, 1)])
def test_seed_epoch_row_and_draw_each_change_the_uniforms(other: tuple[int, int, int, int]) -> None:
    def draw(seed: int, epoch: int, row: int, drawn: int) -> bytes:
        return uniforms(seed, epoch, np.array([row]), np.array([drawn]), 3).tobytes()

    assert draw(*other) != draw(7, 3, 5, 0)
    assert draw(7, 3, 5, 0) == draw(7, 3, 5, 0)


def test_the_resized_size_is_what_resizing_gives() -> None:
    assert [resized_size(size, 256) for size in ((500, 375), (375, 500), (256, 256), (10, 1))] == [
        (341, 256),
        (256, 341),
        (256, 256),
        (2560, 256),
    ]


@pytest.mark.parametrize("arguments", [{"image_size": 224, "resize_size": 200}, {"image_size": 0}, {"interpolation": "nearest"}])
def test_impossible_preprocessing_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"resize_size|interpolation"):
        Preprocessing(**arguments)  # type: ignore[arg-type]
