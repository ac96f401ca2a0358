import base64
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import mlflow
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from PIL import Image

from see_tune.errors import DatasetError
from see_tune.model_folder import load_model_folder
from see_tune.tracking.connection import silence
from see_tune.tracking.registry import save_pyfunc

if TYPE_CHECKING:  # its import warns, and warnings are errors here until silence() was called
    from mlflow.pyfunc import PyFuncModel


@pytest.fixture(scope="module")
def pyfunc_folder(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    silence()
    return save_pyfunc(model_folder, tmp_path_factory.mktemp("pyfunc"))


@pytest.fixture
def model(pyfunc_folder: Path, monkeypatch: pytest.MonkeyPatch) -> "PyFuncModel":
    silence()
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    return mlflow.pyfunc.load_model(str(pyfunc_folder))


@pytest.fixture(scope="module")
def images() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (3, 40, 50, 3), np.uint8)


@pytest.fixture(scope="module")
def expected(model_folder: Path, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return load_model_folder(model_folder).embed([Image.fromarray(image) for image in images])


def encode(image: NDArray[np.uint8]) -> bytes:
    png = io.BytesIO()
    Image.fromarray(image).save(png, "PNG")
    return png.getvalue()


def as_paths(images: NDArray[np.uint8], folder: Path) -> list[str]:
    paths = [folder / f"{number}.png" for number in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        path.write_bytes(encode(image))
    return [str(path) for path in paths]


def as_bytes(images: NDArray[np.uint8], folder: Path) -> list[bytes]:
    return [encode(image) for image in images]


def as_uris(images: NDArray[np.uint8], folder: Path) -> list[str]:
    return ["data:image/png;base64," + base64.b64encode(encode(image)).decode() for image in images]


def as_arrays(images: NDArray[np.uint8], folder: Path) -> list[NDArray[np.uint8]]:
    return list(images)


@pytest.mark.parametrize("kind", [as_paths, as_bytes, as_uris, as_arrays])
@pytest.mark.parametrize("container", [list, lambda items: pd.DataFrame({"image": items})], ids=["list", "frame"])
def test_every_kind_of_image_gives_the_same_unit_embeddings(model, images, expected, kind, container, tmp_path) -> None:
    embeddings = model.predict(container(kind(images, tmp_path)))
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(embeddings, expected, atol=1e-6)


def test_one_array_of_images_is_as_good_as_a_list(model, images, expected) -> None:
    np.testing.assert_allclose(model.predict(images), expected, atol=1e-6)


def test_one_path_alone_is_one_image(model, images, expected, tmp_path) -> None:
    np.testing.assert_allclose(model.predict(as_paths(images[:1], tmp_path)[0]), expected[:1], atol=1e-6)


def test_one_image_alone_is_one_image_in_every_form(model, images, expected, tmp_path) -> None:
    for one in (images[0], as_bytes(images[:1], tmp_path)[0], Path(as_paths(images[:1], tmp_path)[0])):
        np.testing.assert_allclose(model.predict(one), expected[:1], atol=1e-6)


@pytest.mark.parametrize("nothing", [[], np.empty((0, 8, 8, 3), np.uint8), pd.DataFrame(), pd.DataFrame({"image": []})], ids=str)
def test_no_image_gives_no_embedding(model, nothing) -> None:
    assert model.predict(nothing).shape == (0, 16)


def test_a_served_model_takes_data_uris_in_json(model, images, expected, tmp_path) -> None:
    from mlflow.pyfunc.scoring_server import _parse_json_data

    request = json.dumps({"inputs": as_uris(images, tmp_path)})
    parsed = _parse_json_data(request, model.metadata, model.metadata.get_input_schema())
    np.testing.assert_allclose(model.predict(parsed.data), expected, atol=1e-6)


def test_the_input_example_is_an_image_that_the_model_embeds(model) -> None:
    assert model.predict(model.input_example).shape == (1, 16)


def test_the_signature_names_the_dimension(model) -> None:
    (output,) = model.metadata.signature.outputs.inputs
    assert output.shape == (-1, 16)
    assert output.type == np.float32


def test_nothing_is_pickled_and_the_requirements_are_pinned_without_see_tune(pyfunc_folder) -> None:
    assert [path.name for path in pyfunc_folder.rglob("*") if path.suffix in (".pkl", ".pickle", ".pt", ".pth")] == []
    requirements = (pyfunc_folder / "requirements.txt").read_text().split()
    assert all("==" in requirement for requirement in requirements)
    assert not any("see" in requirement for requirement in requirements)


@pytest.mark.parametrize(
    "item",
    [
        "missing.png",
        b"no image",
        "data:image/png,plain",
        "data:image/png;base64,@@@",
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.full((4, 4, 3), 300),
    ],
    ids=repr,
)
def test_what_is_no_image_is_an_error_that_says_so(model, item) -> None:
    with pytest.raises(DatasetError):
        model.predict([item])
