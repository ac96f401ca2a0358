"""DATASETS: one line a dataset. Adding one is one reader module and its line here.

`read_table` is the one door to all of them. Nothing heavy is imported before it is called: the spec reads the names and defaults.
A reader module has ``read(root, *, allow_partial) -> ImageTable`` and ``LAYOUTS``, the folder layouts it knows, in words; an
embedded dataset's is ``read(*, cache, seed)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from see_tune.errors import DatasetError

if TYPE_CHECKING:
    from see_tune.data.table import ImageTable


@dataclass(frozen=True)
class DatasetEntry:
    """One dataset.

    reader: dotted path ``module:function`` of its reader, imported when the dataset is loaded.
    ks: the k of Recall@k that the field reports for it.
    source: where the data is had, for error messages and `see-tune datasets`.
    defaults: dotted spec keys that differ from the spec's own defaults on this dataset.
    embedded: made on the spot, from no root.
    own: pictures of one's own: the entry's name says how they are read, and a title of one's own which they are.
    """

    reader: str
    ks: tuple[int, ...]
    source: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    embedded: bool = False
    own: bool = False


TITLE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""What a dataset may be called: a name that MLflow, a shell and a URI take as it is."""

_GLYPHS_DEFAULTS = {
    "model.backbone": "glyphnet",
    "model.weights": "none",
    "model.embedding_dim": 16,
    "model.freeze_patch_embed": False,
    "data.crop_scale_min": 0.6,
    "data.flip": False,
    "loss.name": "nsoftmax",
    "train.epochs": 8,
    "train.batch_size": 90,
    "train.amp": "none",
    "train.freeze_backbone_epochs": 0,
    "train.optimizer.lr": 1e-3,
    "train.optimizer.lr_at_batch": 90,
    "train.optimizer.eps": 1e-8,
    "train.optimizer.proxies_lr_scale": 10.0,
}

DATASETS: dict[str, DatasetEntry] = {
    "cub200": DatasetEntry("see_tune.data.cub:read", (1, 2, 4, 8, 16), "CUB_200_2011.tgz from the Caltech Vision Lab"),
    "cars196": DatasetEntry("see_tune.data.cars:read", (1, 2, 4, 8, 16), "Stanford Cars, from a mirror: the original is gone"),
    "sop": DatasetEntry("see_tune.data.sop:read", (1, 10, 100, 1000), "Stanford_Online_Products.zip from Stanford CVGL"),
    "inshop": DatasetEntry("see_tune.data.inshop:read", (1, 10, 20, 30), "DeepFashion's In-shop benchmark, CUHK MMLab"),
    "folder": DatasetEntry("see_tune.data.folder:read", (1, 2, 4, 8), "your own: one directory a class", own=True),
    "manifest": DatasetEntry("see_tune.data.manifest:read", (1, 2, 4, 8), "your own: a CSV with path,label", own=True),
    "glyphs": DatasetEntry("see_tune.data.glyphs:read", (1, 2, 4, 8), "embedded: no download", _GLYPHS_DEFAULTS, embedded=True),
}


def read_table(
    name: str,
    *,
    places: Sequence[Path],
    cache: Path,
    classes: int | None = None,
    seed: int = 0,
    allow_partial: bool = False,
    on_corrupt: Literal["fail", "skip"] = "fail",
) -> ImageTable:
    """The table of dataset `name`, read in the first of `places` that exists.

    places: see home.dataset_places; an embedded dataset needs none.
    cache: where rendered glyphs and the list of undecodable images are kept.
    classes: keep so many classes, half of them training and half test classes, drawn by `seed`.
    seed: of the draws that make a dataset what it is, never a trial's: it changes which classes are test classes.
    allow_partial: accept counts that differ from the published ones; the difference goes to the table's notes.
    on_corrupt: ``skip`` decodes every image once and drops those that fail, with a note; ``fail`` opens none here and leaves the
        check to the preflight.

    Raises:
        DatasetError: no such dataset, root, layout or file; counts that differ; too few classes.
    """
    entry = _entry(name)
    read = _reader(entry)
    if entry.embedded:
        table: ImageTable = read(cache=cache, seed=seed)
    else:
        from see_tune.data.table import check_disjoint

        table = read(_find_root(name, places), allow_partial=allow_partial)
        check_disjoint(table)
    if classes is not None:
        from see_tune.data.table import take_classes

        table = take_classes(table, classes, seed)
    if on_corrupt == "skip":
        from see_tune.data.inspection import drop_undecodable

        table = drop_undecodable(table, cache=cache)
    return table


def dataset_layouts(name: str) -> tuple[str, ...]:
    """The folder layouts that the reader of dataset `name` knows, in words.

    Raises:
        DatasetError: no such dataset.
    """
    module = import_module(_entry(name).reader.partition(":")[0])
    layouts: tuple[str, ...] = module.LAYOUTS
    return layouts


def _entry(name: str) -> DatasetEntry:
    if name not in DATASETS:
        raise DatasetError(f"no dataset {name!r}. There are {', '.join(DATASETS)}; your own pictures are a folder or a manifest")
    return DATASETS[name]


def _reader(entry: DatasetEntry) -> Any:
    module, _, function = entry.reader.partition(":")
    return getattr(import_module(module), function)


def _find_root(name: str, places: Sequence[Path]) -> Path:
    for place in places:
        try:
            if place.exists():
                return place
        except OSError as error:
            raise DatasetError(
                f"{place} can't be read ({error.strerror}). A dataset's root is a folder that this user may list and enter: "
                "check dataset.root and its permissions"
            ) from error
    looked = "\n".join(f"  looked for   {place}" for place in places)
    layouts = "\n".join(f"  known layout {layout}" for layout in dataset_layouts(name))
    raise DatasetError(
        f"dataset {name} is not there.\n{looked}\n{layouts}\n  to be had     {DATASETS[name].source}\n"
        f"Name its folder with dataset.root (or --root), or set SEE_TUNE_DATA to the folder that holds {name}/"
    )
