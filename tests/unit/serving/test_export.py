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
from see_tune.errors import ExportError, UserError
from see_tune.model_folder import StoredModel, load_model_folder, write_model_folder
from see_tune.models import build_model
from see_tune.serving import onnx_graph, standalone_onnx
from see_tune.serving.export import Format, export_model
from see_tune.serving.standalone_torch import load_embedder
from see_tune.spec.models import TrialSpec


@pytest.mark.parametrize(
    ("format_", "absent"), [("safetensors", ["see_tune", "onnxruntime"]), ("onnx", ["see_tune", "torch", "timm", "onnx"])]
)
def test_export_embeds_in_a_process_that_imports_neither_see_tune_nor_the_other_formats_engine(
    stored: StoredModel, pictures: Path, tmp_path: Path, format_: Format, absent: list[str]
) -> None:
    out = export_model(stored, tmp_path / "export", source="a test", format_=format_)
    files = sorted(pictures.rglob("*.png"))
    code = (
        "import sys; sys.path.insert(0, '.'); from embed import load_embedder; import numpy; "
        "numpy.save('rows.npy', load_embedder('.').embed(sys.argv[1:])); "
        f"assert not set({absent}) & sys.modules.keys()"
    )
    alone = {"PATH": "/usr/bin", "HOME": str(out)}
    command = [sys.executable, "-c", code, *map(str, files)]
    done = subprocess.run(command, check=True, cwd=out, env=alone, capture_output=True, text=True)
    assert done.stdout + done.stderr == ""
    expected = stored.embed(Image.open(file).convert("RGB") for file in files)
    np.testing.assert_allclose(np.load(out / "rows.npy"), expected, atol=1e-5)


def build_stored(backbone: str, pooling: str, folder: Path) -> StoredModel:
    """Random weights for images of 64 x 64."""
    values = {"backbone": backbone, "weights": "none", "embedding_dim": 8, "pooling": pooling}
    spec = TrialSpec.model_validate({"dataset": {"name": "cub200"}, "model": values, "see": {"n_aug": 4}})
    model = build_model(backbone=backbone, embedding_dim=8, pooling=pooling, image_size=64)  # type: ignore[arg-type]
    preprocessing = Preprocessing(64, 72)
    return load_model_folder(write_model_folder(folder, model, spec.model_dump_json(by_alias=True), preprocessing))


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
    own = build_stored(backbone, pooling, tmp_path / "model")
    exported = load_embedder(export_model(own, tmp_path / "export", source="a test"))
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(exported.network(images), own.model(images), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("backbone", "pooling"), [("resnet10t", "gem"), ("vit_tiny_patch16_224", "auto")])
def test_onnx_gives_the_models_embeddings_for_batches_of_any_size(
    backbone: str, pooling: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = build_stored(backbone, pooling, tmp_path / "model")
    exported = standalone_onnx.load_embedder(export_model(own, tmp_path / "export", source="a test", format_="onnx"))
    for number in (1, 5):
        images = torch.randint(0, 256, (number, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(number))
        with torch.inference_mode():
            expected = own.model(own.preprocessing.normalise(images)).numpy()
        (found,) = exported.session.run(None, {"images": images.numpy()})
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert capfd.readouterr() == ("", "")


def test_a_graph_that_differs_from_the_model_is_an_error_and_leaves_nothing(
    stored: StoredModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_graph, "_TOLERANCE", -1.0)
    with pytest.raises(ExportError, match="differs from the model by"):
        export_model(stored, tmp_path / "export", source="a test", format_="onnx")
    assert list(tmp_path.iterdir()) == []


def test_onnx_without_its_packages_names_the_extra(stored: StoredModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"needs onnxscript, .* pip install 'see-tune\[onnx\]'"):
        export_model(stored, tmp_path / "export", source="a test", format_="onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "I;16", "CMYK"])
def test_images_of_every_kind_are_prepared_as_they_are_evaluated(stored: StoredModel, tmp_path: Path, mode: str) -> None:
    from see_tune.data.pictures import open_rgb

    pixels = np.random.default_rng(0).integers(0, 255, (45, 61), dtype=np.uint8)
    image = Image.fromarray(pixels.astype(np.uint16) * 200) if mode == "I;16" else Image.fromarray(pixels).convert(mode)
    file = tmp_path / ("picture.jpg" if mode == "CMYK" else "picture.png")
    image.save(
        file, exif=b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"
    )
    exported = load_embedder(export_model(stored, tmp_path / "export", source="a test"))
    torch.testing.assert_close(exported.prepare(file), stored.preprocessing(open_rgb(file)), atol=1e-5, rtol=0)
    in_onnx = standalone_onnx.ImageEmbedder(None, exported.preprocessing)
    np.testing.assert_array_equal(in_onnx.prepare(file), stored.preprocessing.evaluate(open_rgb(file)))


def test_export_says_what_it_is_and_where_it_is_from_and_not_where_the_pictures_lay(stored: StoredModel, tmp_path: Path) -> None:
    text = (export_model(stored, tmp_path / "export", source="models:/see-tune.glyphs/3") / "model.json").read_text()
    said = json.loads(text)
    assert (said["source"], said["trained_on"]) == ("models:/see-tune.glyphs/3", "glyphs")
    assert "/home/someone" not in text


def test_whoever_may_read_the_description_may_read_the_weights(stored: StoredModel, tmp_path: Path) -> None:
    folder = export_model(stored, tmp_path / "out", source="here")
    assert len({file.stat().st_mode for file in folder.iterdir() if file.suffix != ".py"}) == 1


def test_a_folder_that_holds_something_is_left_alone(stored: StoredModel, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        export_model(stored, tmp_path, source="a test")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
