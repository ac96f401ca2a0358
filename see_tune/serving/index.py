"""An index of one's own pictures: what a query is looked up in.

    INDEX/
    ├── index.json              the pictures, in the order of the embeddings, with their sizes and times
    ├── embeddings-<hash>.safetensors    (N, D) float32, rows of norm 1
    └── model/                  the model that made them, and that embeds the queries

With the model inside, an index answers without registry, study or network, and can never be asked with another model's
embeddings. index.json is written last and in one step, so an index that is cut while it is updated is the one it was before.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from see_tune.data.folder import IMAGE_ENDINGS
from see_tune.data.pictures import open_rgb
from see_tune.errors import DatasetError, UserError
from see_tune.evaluation.neighbours import nearest
from see_tune.model_folder import StoredModel, load_model_folder, write_model_folder
from see_tune.wording import counted

Progress = Callable[[int, int], None]  # pictures done, pictures in all
Embeddings = NDArray[np.float32]

_FORMAT = 1
_ANNOUNCEMENT = "index.json"


@dataclass(frozen=True)
class IndexedPicture:
    """A file as it was when it was embedded. path: relative to the index's picture folder."""

    path: str
    bytes: int
    modified_ns: int


@dataclass(frozen=True)
class Index:
    """An index that was read.

    images: the folder that the pictures' paths are relative to.
    source: the version that made it, ``models:/see-tune.DATASET/VERSION``.
    embeddings: (N, D), row i of pictures[i].
    """

    folder: Path
    images: Path
    source: str
    pictures: tuple[IndexedPicture, ...]
    embeddings: Embeddings

    def file(self, row: int) -> Path:
        return self.images / self.pictures[row].path


@dataclass(frozen=True)
class Changes:
    """What an update did. skipped: why a picture is not in the index, by path."""

    embedded: int
    kept: int
    removed: int
    skipped: dict[str, str]


@dataclass(frozen=True)
class Hit:
    """One answer. similarity: cosine, -1..1."""

    rank: int
    similarity: float
    path: Path


def build_index(stored: StoredModel, images: Path, out: Path, *, source: str, progress: Progress | None = None) -> Changes:
    """Embed every picture below `images` and write a new index to `out`.

    Raises:
        UserError: there is something at `out` already, or no picture below `images`.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already; --update brings an index up to date, another name makes a new one")
    pictures = _find_pictures(images)
    out.mkdir(parents=True, exist_ok=True)
    model_folder = write_model_folder(
        out / "model", stored.model, stored.spec.model_dump_json(by_alias=True), stored.preprocessing, stored.trained_on
    )
    empty = Index(out, images.resolve(), source, (), np.empty((0, stored.spec.model.embedding_dim), np.float32))
    return _write(empty, load_model_folder(model_folder), pictures, progress)


def update_index(index: Index, *, progress: Progress | None = None) -> Changes:
    """Embed what is new or changed below the index's pictures, and forget what is gone; the model stays the index's own.

    Raises:
        UserError: there is no picture any more.
    """
    return _write(index, load_model_folder(index.folder / "model"), _find_pictures(index.images), progress)


def refuse_another(index: Index, model: str, images: Path) -> None:
    """An index keeps its model and its folder: embeddings of two models do not mix, and paths are relative to one folder.

    model: ``models:/see-tune.DATASET/VERSION``, or ``models:/see-tune.DATASET`` for whichever version made the index.

    Raises:
        UserError: the index was made with another model, or of another folder.
    """
    if model not in (index.source, _dataset_model(index.source)):
        raise UserError(
            f"{index.folder} was made by {index.source}, and embeddings of {model} do not mix with its own. "
            f"Update it as an index of {_dataset_model(index.source).rpartition('see-tune.')[2]} and without --version, or name "
            "another --out to make a new one"
        )
    if images.resolve() != index.images:
        raise UserError(
            f"{index.folder} is of the pictures in {index.images}, not of those in {images.resolve()}. "
            f"Update it with --images {index.images}, or name another --out to make a new one"
        )


def _dataset_model(uri: str) -> str:
    """``models:/see-tune.glyphs/2`` -> ``models:/see-tune.glyphs``"""
    return re.sub(r"(@[\w-]+|/\d+)$", "", uri)


def read_index(folder: Path) -> Index:
    """The index at `folder`.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    try:
        said = json.loads((folder / _ANNOUNCEMENT).read_text(encoding="utf-8"))
        if said["format"] != _FORMAT:
            raise UserError(f"{folder} has format {said['format']}; this see-tune reads {_FORMAT}: update see-tune")
        pictures = tuple(IndexedPicture(**picture) for picture in said["pictures"])
        embeddings = load_file(str(folder / Path(said["embeddings"]).name))["embeddings"]
        if embeddings.ndim != 2 or len(embeddings) != len(pictures):
            raise ValueError(f"{counted(len(pictures), 'picture')} and embeddings of shape {embeddings.shape}")
        return Index(folder, Path(said["images"]), str(said["source"]), pictures, embeddings.astype(np.float32))
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise UserError(
            f"{folder} holds no readable index ({type(error).__name__}: {error}); make one with "
            f"see-tune index DATASET --images DIR --out INDEX"
        ) from error


def query_index(index: Index, queries: Sequence[Path], *, top: int) -> list[list[Hit]]:
    """The `top` nearest pictures to each query, nearest first; all of them where the index has fewer.

    Raises:
        DatasetError: a query is no picture.
    """
    stored = _on_best_device(load_model_folder(index.folder / "model"))
    embedded = stored.embed(open_rgb(query) for query in queries)
    similarities, rows = nearest(embedded, index.embeddings, min(top, len(index.pictures)), exclude_self=False)
    return [
        [Hit(rank, float(similarity), index.file(int(row))) for rank, (similarity, row) in enumerate(found, start=1)]
        for found in (zip(*pair, strict=True) for pair in zip(similarities, rows, strict=True))
    ]


def _find_pictures(images: Path) -> list[IndexedPicture]:
    """Every picture file below a folder, in the order of their paths."""
    files = [file for file in sorted(images.rglob("*")) if file.suffix.lower() in IMAGE_ENDINGS and file.is_file()]
    if not files:
        kinds = ", ".join(sorted(IMAGE_ENDINGS))
        raise UserError(f"--images {images}: there is no picture in it or below; looked for {kinds}. Name another folder")
    stats = [(file, file.stat()) for file in files]
    return [IndexedPicture(file.relative_to(images).as_posix(), stat.st_size, stat.st_mtime_ns) for file, stat in stats]


def _write(before: Index, stored: StoredModel, pictures: Sequence[IndexedPicture], progress: Progress | None) -> Changes:
    """Bring an index to these pictures: rows of unchanged ones are copied, the others embedded."""
    known = {picture: row for row, picture in enumerate(before.pictures)}
    new = [picture for picture in pictures if picture not in known]
    skipped: dict[str, str] = {}
    embedded = _on_best_device(stored).embed(_opened(before.images, new, skipped, progress))
    rows = {picture: before.embeddings[known[picture]] for picture in pictures if picture in known}
    rows |= dict(zip((picture for picture in new if picture.path not in skipped), embedded, strict=True))
    kept = [picture for picture in pictures if picture in rows]
    if not kept:
        raise UserError(f"none of the {len(pictures)} pictures below {before.images} can be read: {next(iter(skipped.values()))}")
    _store(before, kept, np.stack([rows[picture] for picture in kept]))
    gone = {picture.path for picture in before.pictures} - {picture.path for picture in kept}
    return Changes(len(embedded), len(kept) - len(embedded), len(gone), skipped)


def _opened(
    images: Path, pictures: Iterable[IndexedPicture], skipped: dict[str, str], progress: Progress | None
) -> Iterator[Image.Image]:
    """The pictures that can be opened; the others go to `skipped` with the reason."""
    listed = list(pictures)
    for done, picture in enumerate(listed, start=1):
        try:
            opened = open_rgb(images / picture.path)
        except DatasetError as error:
            skipped[picture.path] = str(error)
        else:
            yield opened
        if progress:
            progress(done, len(listed))


def _store(before: Index, pictures: Sequence[IndexedPicture], embeddings: Embeddings) -> None:
    name = f"embeddings-{hashlib.sha256(embeddings.tobytes()).hexdigest()[:16]}.safetensors"
    draft = before.folder / f"{name}.part"
    draft.write_bytes(save({"embeddings": embeddings}))
    draft.replace(before.folder / name)
    said = {
        "format": _FORMAT,
        "source": before.source,
        "images": str(before.images),
        "embeddings": name,
        "pictures": [asdict(picture) for picture in pictures],
    }
    announcement = before.folder / f"{_ANNOUNCEMENT}.part"
    announcement.write_text(json.dumps(said) + "\n", encoding="utf-8")
    announcement.replace(before.folder / _ANNOUNCEMENT)
    for old in before.folder.glob("embeddings-*.safetensors"):
        if old.name != name:
            old.unlink()


def _on_best_device(stored: StoredModel) -> StoredModel:
    stored.model.to("cuda" if torch.cuda.is_available() else "cpu")
    return stored
