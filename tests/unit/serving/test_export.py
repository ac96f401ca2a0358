"""An export gives the model's own embeddings, without see-tune."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from see_tune.data.transforms import Preprocessing
from see_tune.errors import UserError
from see_tune.model_folder import StoredModel, load_model_folder, write_model_folder
from see_tune.models import build_model
from see_tune.serving.export import export_model
from see_tune.serving.standalone import load_embedder
from see_tune.spec.models import TrialSpec


def test_export_embeds_in_a_process_that_never_imports_see_tune(stored: StoredModel, pictures: Path, tmp_path: Path) -> None:
    out = export_model(stored, tmp_path / "export", source="a test")
    files = sorted(pictures.rglob("*.png"))
    code = (
        "import sys; sys.path.insert(0, '.'); from embed import load_embedder; import numpy; "
        "numpy.save('rows.npy', load_embedder('.').embed(sys.argv[1:])); "
        "assert not [name for name in sys.modules if name.startswith('see_tune')]"
    )
    subprocess.run(
        [sys.executable, "-c", code, *map(str, files)], check=True, cwd=out, env={"PATH": "/usr/bin", "HOME": str(out)}
    )
    expected = stored.embed(Image.open(file).convert("RGB") for file in files)
    np.testing.assert_allclose(np.load(out / "rows.npy"), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("backbone", "pooling"),
    [
        ("resnet10t", "avg+max"),
        ("resnet10t", "gem"),
        ("vit_tiny_patch16_224", "auto"),
        ("deit_tiny_distilled_patch16_224", "auto"),
    ],
)
def test_every_layout_of_features_is_written_down(backbone: str, pooling: str, tmp_path: Path) -> None:
    values = {"backbone": backbone, "weights": "none", "embedding_dim": 8, "pooling": pooling}
    spec = TrialSpec.model_validate({"dataset": {"name": "cub200"}, "model": values, "see": {"n_aug": 4}})
    model = build_model(backbone=backbone, embedding_dim=8, pooling=pooling, image_size=64)  # type: ignore[arg-type]
    preprocessing = Preprocessing(64, 72)
    folder = write_model_folder(tmp_path / "model", model, spec.model_dump_json(by_alias=True), preprocessing)
    own = load_model_folder(folder)
    exported = load_embedder(export_model(own, tmp_path / "export", source="a test"))
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(exported.network(images), own.model(images), atol=1e-6, rtol=0)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "I;16", "CMYK"])
def test_images_of_every_kind_are_prepared_as_they_are_evaluated(stored: StoredModel, tmp_path: Path, mode: str) -> None:
    from see_tune.data.transforms import open_rgb

    pixels = np.random.default_rng(0).integers(0, 255, (45, 61), dtype=np.uint8)
    image = Image.fromarray(pixels.astype(np.uint16) * 200) if mode == "I;16" else Image.fromarray(pixels).convert(mode)
    file = tmp_path / ("picture.jpg" if mode == "CMYK" else "picture.png")
    image.save(
        file, exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"
    )
    exported = load_embedder(export_model(stored, tmp_path / "export", source="a test"))
    torch.testing.assert_close(exported.prepare(file), stored.preprocessing(open_rgb(file)), atol=1e-5, rtol=0)


def test_export_says_what_it_is_and_where_it_is_from_and_not_where_the_pictures_lay(stored: StoredModel, tmp_path: Path) -> None:
    text = (export_model(stored, tmp_path / "export", source="models:/see-tune.glyphs/3") / "model.json").read_text()
    said = json.loads(text)
    assert (said["source"], said["trained_on"]) == ("models:/see-tune.glyphs/3", "glyphs")
    assert "/home/someone" not in text


def test_a_folder_that_holds_something_is_left_alone(stored: StoredModel, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        export_model(stored, tmp_path, source="a test")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
