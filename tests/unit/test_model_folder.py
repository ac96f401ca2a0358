import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from see_tune.data.table import build_table, classes_of
from see_tune.data.transforms import Preprocessing
from see_tune.errors import WeightsError
from see_tune.model_folder import load_model_folder, write_model_folder
from see_tune.models import build_model


def pictures(count: int) -> list[Image.Image]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 40, 50, 3), np.uint8)
    return [Image.fromarray(picture) for picture in pixels]


def test_a_model_read_back_embeds_as_it_did_when_it_was_written(model_folder: Path) -> None:
    model = build_model(backbone="glyphnet", embedding_dim=16, image_size=32, seed=3).eval()
    preprocessing = Preprocessing(32, 36)
    images = pictures(3)
    with torch.inference_mode():
        expected = model(torch.stack([preprocessing(image) for image in images])).numpy()
    np.testing.assert_array_equal(load_model_folder(model_folder).embed(images), expected)


def test_embeddings_are_unit_rows_in_the_order_of_the_images_whatever_the_batches(model_folder: Path) -> None:
    stored = load_model_folder(model_folder)
    images = pictures(70)  # more than one batch
    together = stored.embed(iter(images))
    assert together.shape == (70, 16)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(together, np.concatenate([stored.embed([image]) for image in images]), atol=1e-6)


def test_no_image_is_no_embedding(model_folder: Path) -> None:
    assert load_model_folder(model_folder).embed([]).shape == (0, 16)


def test_where_the_pictures_lay_is_not_told(model_folder: Path) -> None:
    assert json.loads((model_folder / "model.json").read_text())["trial"]["dataset"].get("root") is None


def test_what_it_was_trained_on_is_kept_and_no_class_is_named(model_folder: Path, tmp_path: Path) -> None:
    table = build_table("folder", tmp_path, ["1.jpg", "2.jpg"], ["Ada", "Bob"], ["train", "test"])
    ada, all_of_them = classes_of(table, np.array([0])), classes_of(table, np.array([0, 1]))
    stored = load_model_folder(model_folder)
    spec_json = stored.spec.model_dump_json(by_alias=True)
    folder = write_model_folder(tmp_path / "model", stored.model, spec_json, stored.preprocessing, ada)
    assert load_model_folder(folder).trained_on == ada
    assert (all_of_them.shared_with(ada), len(all_of_them)) == (1, 2)
    assert "Ada" not in (folder / "model.json").read_text()


def test_whoever_may_read_the_description_may_read_the_weights(model_folder: Path) -> None:
    assert (model_folder / "model.safetensors").stat().st_mode == (model_folder / "model.json").stat().st_mode


def test_writing_again_replaces_the_model(model_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "model")
    spec_json = json.dumps(json.loads((folder / "model.json").read_text())["trial"])
    other = build_model(backbone="glyphnet", embedding_dim=16, image_size=32, seed=4)
    write_model_folder(folder, other, spec_json, Preprocessing(32, 36))
    assert not np.allclose(load_model_folder(folder).embed(pictures(1)), load_model_folder(model_folder).embed(pictures(1)))


def break_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"short")


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def remove_description(folder: Path) -> None:
    (folder / "model.json").unlink()


def other_dimension(folder: Path) -> None:
    description = json.loads((folder / "model.json").read_text())
    description["trial"]["model"]["embedding_dim"] = 32
    (folder / "model.json").write_text(json.dumps(description))


def later_format(folder: Path) -> None:
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description | {"format": 2}))


@pytest.mark.parametrize("damage", [break_weights, remove_weights, remove_description, other_dimension, later_format])
def test_a_folder_that_holds_no_good_model_is_named(model_folder: Path, tmp_path: Path, damage) -> None:
    folder = shutil.copytree(model_folder, tmp_path / "model")
    damage(folder)
    with pytest.raises(WeightsError, match=str(folder)):
        load_model_folder(folder)
