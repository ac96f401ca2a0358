"""folder: one's own pictures, one directory a class.

Without splits every class is a training class: a study can search and hold classes out, but has no test classes until
`see-tune datasets split` has written a manifest, or the folders say so themselves (train/, validation/, test/, or query/ and
gallery/).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from see_tune.data import DATASETS
from see_tune.data.annotations import entries, subfolders, unknown_layout
from see_tune.data.table import TEST, TRAIN, VALIDATION, ImageTable, build_table
from see_tune.errors import DatasetError

LAYOUTS = (
    "ROOT/<class>/<image>",
    "ROOT/{train, validation (or val), test}/<class>/<image>, validation and test as far as there are any",
    "ROOT/{train, query, gallery}/<class>/<image>, or query and gallery in test/",
)
IMAGE_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})


@dataclass(frozen=True)
class _Part:
    """One folder of classes and what its images are there for."""

    folder: Path
    split: str
    query: bool = True
    gallery: bool = True


def read(root: Path, *, allow_partial: bool = False) -> ImageTable:
    """The pictures under `root`, sorted by split folder, class and name.

    Raises:
        DatasetError: no classes, a class without an image, or unreadable folders.
    """
    parts = _parts(root)
    paths: list[str] = []
    classes: list[str] = []
    split: list[str] = []
    query: list[bool] = []
    gallery: list[bool] = []
    for part in parts:
        for folder in subfolders(part.folder):
            images = list_images(folder, inside=(root.resolve(), part.folder.resolve()))
            if not images:
                raise DatasetError(
                    f"class folder {folder} holds no image ({', '.join(sorted(IMAGE_ENDINGS))}). Put images there, "
                    "or remove the folder"
                )
            paths += [image.relative_to(root).as_posix() for image in images]
            classes += [folder.name] * len(images)
            split += [part.split] * len(images)
            query += [part.query] * len(images)
            gallery += [part.gallery] * len(images)
    if not paths:
        raise unknown_layout("a dataset of one's own", root, LAYOUTS, DATASETS["folder"].source)
    return build_table("folder", root, paths, classes, split, query=query, gallery=gallery)


def list_images(folder: Path, inside: tuple[Path, ...] = ()) -> list[Path]:
    """The image files in `folder` and below, by their endings, sorted, without hidden ones.

    inside: the folders around it, resolved.

    Raises:
        DatasetError: a folder can't be listed, or a link leads back to a folder around it.
    """
    here = folder.resolve()
    if here in inside:
        raise DatasetError(f"{folder} is a link to {here}, which it lies in: all would count twice; remove the link")
    images = []
    for entry in entries(folder):
        if entry.is_dir():
            images += list_images(entry, (*inside, here))
        elif entry.suffix.lower() in IMAGE_ENDINGS:
            images.append(entry)
    return images


def _parts(root: Path) -> list[_Part]:
    folders = subfolders(root)
    found = {folder.name.lower(): folder for folder in folders}
    if "train" not in found:
        return [_Part(root, TRAIN)]
    for folder in folders:
        if found[folder.name.lower()] != folder:
            raise DatasetError(f"{root} has both {folder.name} and {found[folder.name.lower()].name}; put them into one folder")
    parts = [_Part(found.pop("train"), TRAIN)]
    for name in ("validation", "val", "valid"):
        if name in found:
            parts.append(_Part(found.pop(name), VALIDATION))
    test = found.pop("test", None)
    inner = {folder.name.lower(): folder for folder in subfolders(test)} if test else {}
    roles = inner if {"query", "gallery"} <= inner.keys() else found
    if {"query", "gallery"} <= roles.keys():
        parts += [_Part(roles.pop("query"), TEST, gallery=False), _Part(roles.pop("gallery"), TEST, query=False)]
    elif test:
        parts.append(_Part(test, TEST))
    if found:
        raise DatasetError(
            f"{root} has the folders train and {', '.join(sorted(found))}. Beside train there may be validation, test, "
            "query and gallery; "
            "move the others away, or put all classes into one folder without train"
        )
    return parts
