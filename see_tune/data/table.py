"""ImageTable: what every reader returns and everything after it takes.

A reader lists images and opens none. Rows keep the order of the annotation files, so a row index names an image for good.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from see_tune.data import DATASETS
from see_tune.errors import DatasetError
from see_tune.wording import counted

TRAIN, VALIDATION, TEST = "train", "validation", "test"
SPLITS = (TRAIN, VALIDATION, TEST)


@dataclass(frozen=True)
class ImageTable:
    """N images of one dataset.

    name: the dataset's name in DATASETS.
    root: the folder that `paths` are relative to.
    paths: N relative POSIX paths, inside `root`. Where `pixels` is set they are names only.
    labels: (N,) int64 in 0..C-1, indices into `class_names`.
    class_names: C names as the dataset has them.
    split: (N,) str array of "train" | "validation" | "test".
    is_query, is_gallery: (N,) bool. Where the whole evaluated set is both (CUB, Cars, SOP), all True.
    pixels: an .npy file read through a memory map (see pixels.py): the embedded glyphs and the decoded cache. None: the
        files at `paths` are decoded.
    pixel_rows: (N,) int64, the image in `pixels` of each row; None: image i is row i's.
    files: where the images lie under `root` when the archive's nesting makes that differ from `paths`, which name an image
        wherever it lies. None: at `paths`.
    notes: what a person should know of how the table came about ("3 images that do not decode were dropped").
    """

    name: str
    root: Path
    paths: tuple[str, ...]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    split: NDArray[np.str_]
    is_query: NDArray[np.bool_]
    is_gallery: NDArray[np.bool_]
    pixels: Path | None = None
    pixel_rows: NDArray[np.int64] | None = None
    files: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def place(self) -> str:
        """The dataset and where it lies, for messages; an embedded one lies nowhere that a user knows of."""
        return self.name if self.name in DATASETS and DATASETS[self.name].embedded else f"{self.name} at {self.root}"

    def rows(self, split: str) -> NDArray[np.int64]:
        """Indices of the rows of one split, ascending."""
        return np.flatnonzero(self.split == split).astype(np.int64)

    def file(self, row: int) -> Path:
        """Where the image of `row` lies; meaningless where `pixels` is set."""
        return self.root / (self.files or self.paths)[row]

    def pixel_row(self, row: int) -> int:
        """Which image of `pixels` is that of `row`."""
        return row if self.pixel_rows is None else int(self.pixel_rows[row])

    def take(self, rows: NDArray[np.int64]) -> ImageTable:
        """The table of these rows alone; `class_names` and label numbers stay."""
        pixel_rows = self.pixel_rows
        if self.pixels is not None:
            pixel_rows = np.asarray(rows, np.int64) if pixel_rows is None else pixel_rows[rows]
        return replace(
            self,
            paths=tuple(self.paths[row] for row in rows),
            labels=self.labels[rows],
            split=self.split[rows],
            is_query=self.is_query[rows],
            is_gallery=self.is_gallery[rows],
            pixel_rows=pixel_rows,
            files=None if self.files is None else tuple(self.files[row] for row in rows),
        )

    def fingerprint(self) -> str:
        """16 hex digits over names, labels and splits, and never over where the files lie: the dataset's identity."""
        digest = hashlib.sha256(self.name.encode())
        for path, label, split, query, gallery in zip(
            self.paths, self.labels.tolist(), self.split.tolist(), self.is_query.tolist(), self.is_gallery.tolist(), strict=True
        ):
            digest.update(f"{path}\0{self.class_names[label]}\0{split}\0{query:d}{gallery:d}\n".encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Classes:
    """Some classes of one dataset, to be found again in another without spelling their names out.

    fingerprint: of the dataset. marks: 12 hex digits of the SHA-256 of each class's name.
    """

    fingerprint: str
    marks: frozenset[str]

    def __len__(self) -> int:
        return len(self.marks)

    def shared_with(self, other: Classes) -> int:
        """How many of these classes bear the name of one of the others."""
        return len(self.marks & other.marks)

    def to_plain(self) -> dict[str, str]:
        """What JSON holds."""
        return {"fingerprint": self.fingerprint, "marks": " ".join(sorted(self.marks))}

    @classmethod
    def from_plain(cls, plain: Mapping[str, str]) -> Classes:
        """What `to_plain` gave. Raises: KeyError, TypeError, AttributeError for anything else."""
        return cls(plain["fingerprint"], frozenset(plain["marks"].split()))


def classes_of(table: ImageTable, rows: NDArray[np.int64]) -> Classes:
    """The classes of these rows."""
    names = (table.class_names[label] for label in np.unique(table.labels[rows]))
    return Classes(table.fingerprint(), frozenset(hashlib.sha256(name.encode()).hexdigest()[:12] for name in names))


def build_table(
    name: str,
    root: Path,
    paths: list[str],
    classes: list[str],
    split: list[str],
    *,
    query: list[bool] | None = None,
    gallery: list[bool] | None = None,
    files: list[str] | None = None,
    notes: tuple[str, ...] = (),
) -> ImageTable:
    """An ImageTable from one list a column; `classes` are names, numbered in the order they first appear.

    Raises:
        DatasetError: a name is no text, or an image is listed twice.
    """
    twice = next((path for path, times in Counter(paths).items() if times > 1), None)
    if twice is not None:
        raise DatasetError(
            f"{root}: {twice!r} is listed twice, and an image that is its own twin is always found; list each image once, or "
            "unpack the archive again"
        )
    for text in (*paths, *dict.fromkeys(classes)):
        if not _is_text(text):
            raise DatasetError(
                f"{root}: the name {text!r} is no UTF-8 text, which no manifest can hold; rename that file or folder"
            )
    numbers = {label: number for number, label in enumerate(dict.fromkeys(classes))}
    everywhere = [True] * len(paths)
    return ImageTable(
        name=name,
        root=root,
        paths=tuple(paths),
        labels=np.array([numbers[label] for label in classes], np.int64),
        class_names=tuple(numbers),
        split=np.array(split, dtype=f"<U{len(VALIDATION)}"),
        is_query=np.array(query or everywhere, np.bool_),
        is_gallery=np.array(gallery or everywhere, np.bool_),
        files=None if files is None or files == paths else tuple(files),
        notes=notes,
    )


def _is_text(name: str) -> bool:
    """False for what the operating system handed out undecoded."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def take_classes(table: ImageTable, count: int, seed: int) -> ImageTable:
    """The table of `count` classes drawn by `seed`: half test classes, the rest training classes; without a test split all train.

    Raises:
        DatasetError: more classes are asked for than there are.
    """
    pools = [np.unique(table.labels[table.split != TEST]), np.unique(table.labels[table.split == TEST])]
    shares = [count - count // 2, count // 2] if len(pools[1]) else [count, 0]
    for pool, share, kind in zip(pools, shares, ("training", "test"), strict=True):
        if share > len(pool):
            raise DatasetError(
                f"dataset.classes {count} takes {counted(share, f'{kind} class')} and {table.name} has {len(pool)}. "
                f"It is at most {2 * min(map(len, pools)) if len(pools[1]) else len(pool)}"
            )
    generator = np.random.default_rng(np.random.SeedSequence([seed % 2**64, count]))
    kept = np.concatenate([generator.permutation(pool)[:share] for pool, share in zip(pools, shares, strict=True)])
    return table.take(np.flatnonzero(np.isin(table.labels, kept)).astype(np.int64))


def check_disjoint(table: ImageTable) -> None:
    """Raises: DatasetError where a class is on two sides of the split."""
    sides = [(split, np.unique(table.labels[table.rows(split)])) for split in SPLITS]
    for position, (first, ones) in enumerate(sides):
        for second, others in sides[position + 1 :]:
            both = np.intersect1d(ones, others)
            if len(both) > 0:
                raise DatasetError(
                    f"{table.place}: {counted(len(both), 'class is', 'classes are')} in {first} and in {second} (first: "
                    f"{table.class_names[both[0]]!r}). Recall@k is measured on classes that training never saw: "
                    "give each class one "
                    "split; see-tune datasets split draws one for a folder of classes"
                )
