"""Class-disjoint validation inside the training classes, and the two splits that meet the test classes.

    table -> split_table(kind) -> Split: rows to train on, rows to measure on, their hash

A search sees `fraction` (one held-out share of the training classes) or `fold` (one of several). `test` and `paper` train on
all training classes and are measured on the test classes. Which classes are held out depends on the table and the seed
alone, so every trial of a study is measured on the same ones.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from see_tune.data.table import TEST, TRAIN, VALIDATION, ImageTable
from see_tune.errors import DatasetError
from see_tune.wording import counted

SplitKind = Literal["fraction", "fold", "test", "paper"]
Rows = NDArray[np.int64]

# One class alone has no negatives: its recall is 1 whatever the embedding.
MIN_CLASSES = 2
_HOLD_OUT, _ROLES = 0, 1  # random streams of their own

# What is measured on, as messages name it.
_TEST, _VALIDATION, _HELD_OUT = "the test split", "the validation split", "the held-out training classes"
_PAIRLESS = {
    _TEST: "give its classes two images and more, or split the classes anew (see-tune datasets split)",
    _VALIDATION: "give its classes two images and more, or make them training classes, of which a study holds some out",
    _HELD_OUT: "give the training classes two images and more, or hold out more: a larger validation.fraction, fewer folds",
}


@dataclass(frozen=True)
class Split:
    """What one training sees and what it is measured on.

    train_rows: (N,) int64 table rows, ascending.
    train_labels: (N,) int64 in 0..num_classes-1, in their order.
    query_rows: (Q,) int64 table rows, ascending.
    gallery_rows: (G,) int64, or None: the queries are their own gallery, each query excluded from it by its index.
    hash: 16 hex digits over the table's fingerprint and all of the above.
    notes: what a person should know ("12 of 799 held-out classes have one image ...").
    """

    train_rows: Rows
    train_labels: Rows
    num_classes: int
    query_rows: Rows
    gallery_rows: Rows | None
    hash: str
    notes: tuple[str, ...] = ()


def split_table(
    table: ImageTable, *, kind: SplitKind = "fraction", seed: int = 0, fraction: float = 0.2, folds: int = 4, fold: int = 0
) -> Split:
    """The split of `kind`; test rows are in none but ``test`` and ``paper``.

    fraction: part of the training classes that is held out, used by kind ``fraction``; a table with validation rows of its own is
        split by those instead.
    folds, fold: kind ``fold`` shuffles the training classes by `seed`, cuts them into `folds` parts and holds out part `fold`.

    Raises:
        DatasetError: too few classes for the split, no test classes, classes that are on both sides, or no query that has an
            image of its class to find. It says which images are meant: held-out training classes, validation or test split.
        ValueError: `fraction` is not inside (0, 1), or `fold` not one of `folds`.
    """
    if kind in {"test", "paper"}:
        train, measured, which = _development_rows(table), table.rows(TEST), _TEST
        if len(measured) == 0:
            raise DatasetError(
                f"{table.place} has no test classes to measure on. Give some classes the split test "
                "(see-tune datasets split writes a manifest that does), or end the study without them: final: none"
            )
    elif kind == "fraction" and len(table.rows(VALIDATION)) > 0:
        train, measured, which = table.rows(TRAIN), table.rows(VALIDATION), _VALIDATION
    else:
        train, measured = _hold_out(table, _held_out_classes(table, kind, seed, fraction, folds, fold))
        which = _HELD_OUT
    _check_classes(table, train, measured, which)
    return _split(table, train, measured, which, seed)


def _development_rows(table: ImageTable) -> Rows:
    return np.flatnonzero(table.split != TEST).astype(np.int64)


def _held_out_classes(table: ImageTable, kind: SplitKind, seed: int, fraction: float, folds: int, fold: int) -> Rows:
    classes = np.unique(table.labels[_development_rows(table)])
    shuffled = _generator(seed, _HOLD_OUT).permutation(classes)
    if kind == "fold":
        if not 0 <= fold < folds or folds < 2:
            raise ValueError(f"fold {fold} of {folds}: folds is at least 2 and fold one of 0..folds-1")
        if len(classes) < MIN_CLASSES * folds:
            raise DatasetError(
                f"{table.name} has {counted(len(classes), 'training class')}, too few for {counted(folds, 'fold')}: each "
                f"needs at least {MIN_CLASSES}, so {MIN_CLASSES * folds} in all. Use fewer folds (validation.folds, "
                "validation.rerank_folds), or more classes"
            )
        return np.array_split(shuffled, folds)[fold]
    if not 0 < fraction < 1:
        raise ValueError(f"fraction {fraction}: it lies between 0 and 1, both excluded")
    if len(classes) < 2 * MIN_CLASSES:
        raise DatasetError(
            f"{table.place} has {counted(len(classes), 'training class')}, "
            "too few to hold "
            f"any out: training and validation need at least {MIN_CLASSES} each, so {2 * MIN_CLASSES} in all. Add classes"
        )
    count = min(max(round(fraction * len(classes)), MIN_CLASSES), len(classes) - MIN_CLASSES)
    return shuffled[:count]


def _hold_out(table: ImageTable, classes: Rows) -> tuple[Rows, Rows]:
    rows = _development_rows(table)
    held_out = np.isin(table.labels[rows], classes)
    return rows[~held_out], rows[held_out]


def _check_classes(table: ImageTable, train: Rows, measured: Rows, which: str) -> None:
    trained_on, measured_on = np.unique(table.labels[train]), np.unique(table.labels[measured])
    for name, classes in (("trained on", trained_on), (f"measured on ({which})", measured_on)):
        if len(classes) < MIN_CLASSES:
            raise DatasetError(
                f"{table.place}: {counted(len(classes), 'class')} to be {name}; a ranking needs at least {MIN_CLASSES}. "
                "See what each split holds with see-tune datasets check, and add classes"
            )
    both = np.intersect1d(trained_on, measured_on)
    if len(both) > 0:
        raise DatasetError(
            f"{table.place}: {counted(len(both), 'class is', 'classes are')} both trained on and in {which} (first: "
            f"{table.class_names[both[0]]}). Recall@k is measured on classes that training never saw: give each class one split"
        )


def _split(table: ImageTable, train: Rows, measured: Rows, which: str, seed: int) -> Split:
    names, train_labels = np.unique(table.labels[train], return_inverse=True)
    query, gallery, notes = _roles(table, measured, which, seed)
    _check_pairs(table, query, gallery, which)
    digest = hashlib.sha256(table.fingerprint().encode())
    for rows in (train, query, gallery):
        digest.update(b"none" if rows is None else rows.astype("<i8").tobytes())
        digest.update(b"|")
    return Split(train, train_labels.astype(np.int64), len(names), query, gallery, digest.hexdigest()[:16], notes)


def _roles(table: ImageTable, measured: Rows, which: str, seed: int) -> tuple[Rows, Rows | None, tuple[str, ...]]:
    """Who asks and who answers among the measured rows."""
    query, gallery = measured[table.is_query[measured]], measured[table.is_gallery[measured]]
    one_sided = len(query) == 0 or len(gallery) == 0
    marked, test_marked = _has_roles(table, measured), _has_roles(table, table.rows(TEST))
    # Roles are given to test images; what stands beside a training image is often no more than a filled-in blank.
    if test_marked and (not marked or (one_sided and which == _HELD_OUT)):
        query, gallery = _halve_classes(table, measured, seed)
        return query, gallery, _lonely_note(table, measured, "they are in the gallery and can't be queries")
    if not marked:
        return measured, None, _lonely_note(table, measured, "they are queries without an answer, left out and counted")
    if one_sided:
        raise DatasetError(
            f"{table.place}: {counted(len(query), 'query')} and {counted(len(gallery), 'gallery image')} of {which} to measure "
            "on; both are needed. Mark some of its images as is_query and others as is_gallery, or leave both columns out"
        )
    if len(both := np.intersect1d(query, gallery)):
        raise DatasetError(
            f"{table.place}: {counted(len(both), 'image is', 'images are')} both query and gallery of {which} (first: "
            f"{table.paths[both[0]]}), and an image would find itself. Give each image one role (an empty "
            "is_query or is_gallery is true), or leave both columns out: then every image asks all others"
        )
    return query, gallery, ()


def _check_pairs(table: ImageTable, query: Rows, gallery: Rows | None, which: str) -> None:
    """Raises: DatasetError where no query has an image of its class to find."""
    if gallery is None:
        if np.bincount(table.labels[query]).max() < 2:
            raise DatasetError(
                f"{table.place}: no class of {which} has two images, so that no query has one to find and nothing can be "
                f"measured; {_PAIRLESS[which]}"
            )
    elif not np.isin(table.labels[query], table.labels[gallery]).any():
        raise DatasetError(
            f"{table.place}: no query of {which} has a gallery image of its class, so that nothing can be measured; "
            f"{_PAIRLESS[which]}"
        )


def _has_roles(table: ImageTable, rows: Rows) -> bool:
    return not bool((table.is_query[rows] & table.is_gallery[rows]).all())


def _halve_classes(table: ImageTable, rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Half of each class's images, drawn by `seed`, ask; the rest (the larger half of an odd number) answer."""
    labels = table.labels[rows]
    order = np.lexsort((_generator(seed, _ROLES).random(len(rows)), labels))
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    position = np.arange(len(rows)) - np.repeat(starts, counts)
    asks = position < np.repeat(counts // 2, counts)
    return np.sort(rows[order[asks]]), np.sort(rows[order[~asks]])


def _lonely_note(table: ImageTable, rows: Rows, consequence: str) -> tuple[str, ...]:
    _, counts = np.unique(table.labels[rows], return_counts=True)
    lonely = int((counts == 1).sum())
    of = f"of {len(counts)} measured classes"
    return (f"{counted(lonely, f'{of} has', f'{of} have')} one image: {consequence}",) if lonely else ()


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed % 2**64, stream]))
