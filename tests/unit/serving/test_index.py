"""Pictures are found again, and an index follows its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from see_tune.data.folder import IMAGE_ENDINGS
from see_tune.errors import DatasetError, UserError
from see_tune.model_folder import StoredModel
from see_tune.serving.index import Changes, build_index, query_index, read_index, refuse_another, update_index

SOURCE = "models:/see-tune.birds/2"


@pytest.fixture
def index(stored: StoredModel, pictures: Path, tmp_path: Path) -> Path:
    build_index(stored, pictures, tmp_path / "index", source=SOURCE)
    return tmp_path / "index"


def test_a_picture_of_the_index_is_its_own_nearest(index: Path, pictures: Path) -> None:
    files = sorted(pictures.rglob("*.png"))
    found = query_index(read_index(index), files, top=3)
    assert [hits[0].path for hits in found] == files
    assert all(hits[0].similarity == pytest.approx(1, abs=1e-5) for hits in found)
    assert [hit.rank for hit in found[0]] == [1, 2, 3]


def test_answers_are_those_of_all_similarities_sorted(index: Path, stored: StoredModel, pictures: Path) -> None:
    query = pictures / "a/0.png"
    read = read_index(index)
    similarities = read.embeddings @ stored.embed([Image.open(query).convert("RGB")])[0]
    hits = query_index(read, [query], top=100)[0]
    assert [hit.path for hit in hits] == [read.file(row) for row in np.argsort(-similarities)]


def test_update_embeds_the_new_keeps_the_old_and_forgets_the_gone(index: Path, pictures: Path) -> None:
    before = read_index(index)
    (pictures / "a/0.png").unlink()
    Image.new("RGB", (40, 40), "red").save(pictures / "a/1.png")
    Image.new("RGB", (40, 40), "blue").save(pictures / "new.JPG", format="JPEG")
    assert update_index(read_index(index)) == Changes(embedded=2, kept=7, removed=1, skipped={})
    after = read_index(index)
    assert "a/0.png" not in {picture.path for picture in after.pictures}
    unchanged = {picture.path: row for row, picture in enumerate(before.pictures)}
    for row, picture in enumerate(after.pictures):
        if picture in before.pictures:
            np.testing.assert_array_equal(after.embeddings[row], before.embeddings[unchanged[picture.path]])


def test_updated_index_equals_one_that_is_built_anew(index: Path, stored: StoredModel, pictures: Path, tmp_path: Path) -> None:
    Image.new("RGB", (40, 40), "blue").save(pictures / "a/00.png")
    update_index(read_index(index))
    build_index(stored, pictures, tmp_path / "anew", source="a test")
    updated, anew = read_index(index), read_index(tmp_path / "anew")
    assert updated.pictures == anew.pictures
    np.testing.assert_allclose(updated.embeddings, anew.embeddings, atol=1e-5)


@pytest.mark.parametrize("ending", sorted(IMAGE_ENDINGS))
def test_every_picture_that_a_dataset_may_hold_is_indexed(ending: str, stored: StoredModel, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (40, 40), "red").save(tmp_path / f"pictures/1{ending}")
    assert build_index(stored, tmp_path / "pictures", tmp_path / "new", source="champion").embedded == 1


def test_what_does_not_decode_is_skipped_and_named(stored: StoredModel, pictures: Path, tmp_path: Path) -> None:
    (pictures / "broken.png").write_bytes(b"no picture")
    changes = build_index(stored, pictures, tmp_path / "index", source="a test")
    assert changes.embedded == 9
    assert list(changes.skipped) == ["broken.png"]
    assert "does not decode" in changes.skipped["broken.png"]


def test_index_holds_no_pickle_and_one_file_of_embeddings(index: Path, pictures: Path) -> None:
    (pictures / "a/0.png").unlink()
    update_index(read_index(index))
    names = sorted(file.name.partition("-")[0] for file in index.rglob("*") if file.is_file())
    assert names == ["embeddings", "index.json", "model.json", "model.safetensors"]


def test_whoever_may_read_one_file_of_an_index_may_read_all(index: Path) -> None:
    assert len({file.stat().st_mode for file in index.rglob("*") if file.is_file()}) == 1


def test_a_folder_without_pictures_is_refused_before_anything_is_written(stored: StoredModel, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="there is no picture"):
        build_index(stored, tmp_path / "empty", tmp_path / "index", source="a test")
    assert not (tmp_path / "index").exists()


def test_an_index_is_not_written_over(index: Path, stored: StoredModel, pictures: Path) -> None:
    with pytest.raises(UserError, match="--update"):
        build_index(stored, pictures, index, source="a test")


@pytest.mark.parametrize("model", [SOURCE, "models:/see-tune.birds"])
def test_an_index_is_updated_by_the_version_or_the_dataset_that_made_it(index: Path, pictures: Path, model: str) -> None:
    refuse_another(read_index(index), model, pictures / "a" / "..")


@pytest.mark.parametrize("model", ["models:/see-tune.birds/3", "models:/see-tune.fish", "models:/see-tune.bird"])
def test_an_index_of_one_model_takes_no_embeddings_of_another(index: Path, pictures: Path, model: str) -> None:
    with pytest.raises(UserError, match=rf"was made by {SOURCE}, and embeddings of {model} do not mix.*another --out"):
        refuse_another(read_index(index), model, pictures)


def test_an_index_of_one_folder_is_not_turned_into_one_of_another(index: Path, pictures: Path) -> None:
    with pytest.raises(UserError, match=f"of the pictures in {pictures}, not of those in {pictures / 'a'}.*another --out"):
        refuse_another(read_index(index), SOURCE, pictures / "a")


def test_what_is_no_index_says_how_one_is_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="see-tune index DATASET --images DIR --out INDEX"):
        read_index(tmp_path)


def test_an_index_cannot_name_a_file_outside_itself(index: Path, tmp_path: Path) -> None:
    file = index / "index.json"
    file.write_text(file.read_text().replace('"embeddings": "embeddings-', '"embeddings": "../../embeddings-'))
    assert len(read_index(index).pictures) == 9  # the name alone counts


def test_a_query_that_is_no_picture_is_named(index: Path, tmp_path: Path) -> None:
    (tmp_path / "query.png").write_bytes(b"no picture")
    with pytest.raises(DatasetError, match=r"query\.png: does not decode"):
        query_index(read_index(index), [tmp_path / "query.png"], top=1)
