"""How far down each query's nearest neighbours its positives stand: exact, in bounded memory, from one pass of products.

Every retrieval metric here is a function of those ranks, so one pass serves any k. A positive is a gallery row of the
query's class other than the query itself, which is excluded by its index; all other rows are negatives.

    position of a query's j-th best positive, of similarity s  =  j + #{negatives with similarity >= s - 1e-6}

so a tie counts against the query. The tolerance is there because two float32 products of the same rows differ by rounding:
without it a model that maps every image to one point scores anything between 0 and 1.

The design, because time and memory are what this costs (60,502 x 60,502 similarities are 15 GB):

1. Rows are sorted by class. Same-class pairs then lie in a narrow band along the diagonal, from which the best positive
   of each query comes at little cost.
2. One sweep over square tiles counts, for each query, the negatives at or above a threshold known beforehand. A set ranked
   against itself needs the tiles above the diagonal alone: each serves its rows, and its columns as queries too.
3. MAP@R and R-precision need positions up to R (the number of positives) and no further. A sample of the gallery gives each
   query a similarity that at least R negatives reach; positives not above it are beyond R. The few negatives above the
   remaining thresholds are listed in the sweep of step 2 and counted threshold by threshold.
4. Where a class holds a good part of the gallery there are no few such negatives. Its queries have their R nearest put in
   order, query by query, which costs the same however many of them are positives.

Legend: Q queries, G gallery rows, D dimension, P positives, R the number of positives that a query has in the gallery.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from see_tune.errors import EvaluationError
from see_tune.evaluation.metrics import precision_within_r
from see_tune.evaluation.vectors import Embeddings, as_array, as_matrix, full_precision, unit_rows
from see_tune.wording import counted

TIE_TOLERANCE = 1e-6

_CPU_TILE = 1024  # 4 MB of similarities: they are counted before they leave the cache
_GPU_TILE = 2048
_SAMPLED_AT_ONCE = 2**22
_ORDERED_AT_ONCE = 2**21  # about 100 MB
_ORDERED_FROM = 1 / 32  # R over G: from here on ordering costs less than listing
_POSITIVES_AT_ONCE = 2**23  # about 300 MB


@dataclass(frozen=True)
class QueryRanks:
    """What the metrics are made of, in the order of the queries.

    best_positive_rank: (Q,) int64 from 1; 0 where the query has no positive.
    positives: (Q,) int64, R of each query.
    candidates: how many gallery rows each query is ranked against: G, or N - 1 where the set is its own gallery.
    average_precision: (Q,) float64, average precision at R; 0 where R is 0. None where it was not asked for.
    r_precision: (Q,) float64, the same way.
    """

    best_positive_rank: NDArray[np.int64]
    positives: NDArray[np.int64]
    candidates: int
    average_precision: NDArray[np.float64] | None = None
    r_precision: NDArray[np.float64] | None = None

    @property
    def has_positive(self) -> NDArray[np.bool_]:
        return self.positives > 0


def rank_queries(
    embeddings: Embeddings,
    labels: ArrayLike | Tensor,
    *,
    gallery: Embeddings | None = None,
    gallery_labels: ArrayLike | Tensor | None = None,
    within_r: bool = True,
) -> QueryRanks:
    """Rank every query's positives among its neighbours.

    The work is done on the device of `embeddings`, with a sorted float32 copy of them and about 150 MB beside it (a few
    hundred where classes have thousands of rows and `within_r` is set).

    Args:
        embeddings: (Q, D) of any floating type; converted to float32 and normalised, see `vectors`.
        labels: (Q,) integers, or strings.
        gallery: (G, D) for a query-gallery set, where no query is its own neighbour. None: the set is its own gallery.
        gallery_labels: (G,) of the same kind as `labels`.
        within_r: also the average precision at R and R-precision, which cost about as much as half the rest.

    Raises:
        EvaluationError: numbers that are not finite, shapes or kinds that do not agree, or no query with a positive.
    """
    rows = as_matrix(embeddings)
    others = None if gallery is None else as_matrix(gallery, "gallery embeddings").to(rows.device)
    codes, gallery_codes = _encode(rows, labels, others, gallery_labels)
    positives = np.bincount(gallery_codes, minlength=codes.max() + 1)[codes] - (gallery is None)
    if not positives.any():
        raise EvaluationError(
            f"none of the {len(codes)} queries has a positive in the gallery; at least one class needs two rows (or a row "
            "on either side of a query-gallery set). Check the labels."
        )
    with full_precision(rows.device):
        queries = _ClassSorted.of(rows, codes)
        answers = queries if others is None else _ClassSorted.of(others, gallery_codes, "gallery embeddings")
        pairs = _Pairs(queries, answers, itself=others is None)
        r = positives[queries.order]
        best_rank, precisions = _rank_within_r(pairs, r) if within_r else (_rank_best(pairs, r), ())
    back = np.argsort(queries.order)
    return QueryRanks(best_rank[back], positives, len(answers) - pairs.itself, *(values[back] for values in precisions))


def _encode(
    rows: Tensor, labels: ArrayLike | Tensor, others: Tensor | None, gallery_labels: ArrayLike | Tensor | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Classes numbered from 0, those with the fewest gallery rows first: rows sorted by class have a like R as neighbours."""
    named = _as_labels(labels, rows, "labels")
    if (others is None) != (gallery_labels is None):
        raise EvaluationError("a gallery and its labels belong together; only one of them was given. Hand over both or neither.")
    if others is None or gallery_labels is None:
        _, codes, sizes = np.unique(named, return_inverse=True, return_counts=True)
        numbered = np.argsort(np.argsort(sizes, kind="stable"))[codes]
        return numbered, numbered
    if rows.shape[1] != others.shape[1]:
        raise EvaluationError(
            f"the gallery has {counted(others.shape[1], 'dimension')} and the queries have {rows.shape[1]}; they must be equal. "
            "Embed both with one model."
        )
    gallery_named = _as_labels(gallery_labels, others, "gallery labels")
    if named.dtype.kind != gallery_named.dtype.kind:
        raise EvaluationError(
            f"labels of type {named.dtype} and gallery labels of type {gallery_named.dtype} cannot be compared; both must be "
            "integers or both strings. Convert one of them."
        )
    classes, codes = np.unique(np.concatenate([named, gallery_named]), return_inverse=True)
    sizes = np.bincount(codes[len(named) :], minlength=len(classes))
    numbered = np.argsort(np.argsort(sizes, kind="stable"))[codes]
    return numbered[: len(named)], numbered[len(named) :]


def _as_labels(labels: ArrayLike | Tensor, rows: Tensor, name: str) -> NDArray[np.generic]:
    """(N,) int64 or str. A sequence is read as objects: numpy would make ``["1", 1]`` two equal strings, and of NaN a name."""
    named = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else as_array(labels, name, object)
    if named.dtype.kind in "iub":
        named = named.astype(np.int64)
    elif named.dtype.kind == "O" and named.shape == (len(rows),):
        named = _of_one_kind(named, name)
    if named.shape != (len(rows),) or named.dtype.kind not in "iU":
        raise EvaluationError(
            f"{name} of shape {named.shape} and type {named.dtype} do not fit {counted(len(rows), 'embedding')}; valid is one "
            "integer or string for each row. (Floating-point labels are refused: they merge large numbers.)"
        )
    return named


def _of_one_kind(named: NDArray[np.object_], name: str) -> NDArray[np.generic]:
    is_text = isinstance(named[0], str)
    for row, label in enumerate(named):
        if isinstance(label, str) != is_text or not (is_text or _is_integer(label)):
            raise EvaluationError(
                f"row {row} of the {name} is {label!r}; valid is one integer of at most 64 bits for each row, or one string for "
                "each. Leave out what has no class, and convert the rest. (Floating-point labels are refused: they merge large "
                "numbers.)"
            )
    return named.astype(np.str_ if is_text else np.int64)


def _is_integer(label: Any) -> bool:
    try:
        np.int64(operator.index(label))
    except (TypeError, OverflowError):
        return False
    return True


@dataclass(frozen=True)
class _ClassSorted:
    """Rows sorted by class.

    units: (N, D) float32 unit rows.
    codes: (N,) ascending class numbers; `classes` are the same on the device of `units`.
    order: (N,) the row that each one was.
    """

    units: Tensor
    codes: NDArray[np.int64]
    classes: Tensor
    order: NDArray[np.int64]

    @classmethod
    def of(cls, matrix: Tensor, codes: NDArray[np.int64], name: str = "embeddings") -> _ClassSorted:
        order = np.argsort(codes, kind="stable")
        units = unit_rows(matrix, torch.from_numpy(order).to(matrix.device), name)
        return cls(units, codes[order], torch.from_numpy(codes[order]).to(matrix.device), order)

    def __len__(self) -> int:
        return len(self.order)


@dataclass(frozen=True)
class _Pairs:
    """All pairs of a query and a gallery row, tile by tile.

    itself: the gallery is the set of queries, row for row.
    """

    queries: _ClassSorted
    answers: _ClassSorted
    itself: bool

    @property
    def device(self) -> torch.device:
        return self.queries.units.device

    @property
    def tile(self) -> int:
        return _CPU_TILE if self.device.type == "cpu" else _GPU_TILE

    def similarities(self, rows: slice, columns: slice) -> Tensor:
        return self.queries.units[rows] @ self.answers.units[columns].T

    def same_class(self, rows: slice, columns: slice) -> Tensor:
        return self.queries.classes[rows, None] == self.answers.classes[columns]

    def positive_tiles(self, rows: slice) -> Iterator[tuple[Tensor, Tensor]]:
        """(similarities, which are of positives) of the tiles that hold all positives of `rows`."""
        first, last = self.queries.codes[[rows.start, rows.stop - 1]]
        start, stop = np.searchsorted(self.answers.codes, [first, last + 1]).tolist()
        for columns in _windows(start, stop, self.tile):
            positive = self.same_class(rows, columns)
            if self.itself:
                positive.diagonal(rows.start - columns.start).fill_(False)
            yield self.similarities(rows, columns), positive

    def negative_tiles(self, rows: slice) -> Iterator[tuple[slice, Tensor]]:
        """(queries, their similarities to some gallery rows): each negative of `rows` once, positives and self as -inf."""
        mirrored = self.itself and rows == slice(0, len(self.queries))
        for left in _windows(rows.start, rows.stop, self.tile):
            for right in _windows(left.start if mirrored else 0, len(self.answers), self.tile):
                block = self.similarities(left, right)
                if self._share_classes(left, right):
                    block.masked_fill_(self.same_class(left, right), -torch.inf)
                yield left, block
                if mirrored and right != left:
                    yield right, block.T

    def _share_classes(self, left: slice, right: slice) -> bool:
        ours, theirs = self.queries.codes[left], self.answers.codes[right]
        return bool(ours[0] <= theirs[-1] and theirs[0] <= ours[-1])


def _windows(start: int, stop: int, size: int) -> Iterator[slice]:
    for first in range(start, stop, size):
        yield slice(first, min(first + size, stop))


def _rank_best(pairs: _Pairs, r: NDArray[np.int64]) -> NDArray[np.int64]:
    """(Q,) the rank of each query's best positive, 0 where `r`, its number of positives, is 0."""
    every = slice(0, len(r))
    floor = torch.cat([_best_positive(pairs, rows) for rows in _windows(0, len(r), pairs.tile)]) - TIE_TOLERANCE
    above = torch.zeros(len(r), dtype=torch.int64, device=pairs.device)
    for rows, block in pairs.negative_tiles(every):
        above[rows] += _count_rows(block >= floor[rows, None])
    return np.where(r > 0, above.cpu().numpy() + 1, 0)


def _best_positive(pairs: _Pairs, rows: slice) -> Tensor:
    """(B,) the highest similarity of a positive, -inf where there is none."""
    best = torch.full((rows.stop - rows.start,), -torch.inf, device=pairs.device)
    for similarity, positive in pairs.positive_tiles(rows):
        best = torch.maximum(best, similarity.masked_fill(~positive, -torch.inf).amax(dim=1))
    return best


def _count_rows(mask: Tensor) -> Tensor:
    # Bytes summed as bytes: summing bools first writes them all out as int64, which costs more than the products.
    return mask.view(torch.uint8).sum(dim=1, dtype=torch.int32)


def _rank_within_r(pairs: _Pairs, r: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[NDArray[np.float64], ...]]:
    """(Q,) the rank of the best positive; (Q,) average precision at R and (Q,) R-precision.

    Queries are taken all at once, unless their classes are so large that the positives of all would not fit in memory. R
    ascends along the queries, so that those of the largest classes are the last.
    """
    few = int(np.searchsorted(r, _ORDERED_FROM * len(pairs.answers)))
    part = np.cumsum(r[:few]) // _POSITIVES_AT_ONCE
    ends = [*(np.flatnonzero(np.diff(part)) + 1).tolist(), few]
    ranked = [_rank_part_within_r(pairs, r, slice(start, end)) for start, end in pairwise([0, *ends]) if end]
    size = max(1, _ORDERED_AT_ONCE // len(pairs.answers))
    ranked += [_order_within_r(pairs, r[rows], rows) for rows in _windows(few, len(r), size)]
    best_rank, average_precision, r_precision = (np.concatenate(values) for values in zip(*ranked, strict=True))
    return best_rank, (average_precision, r_precision)


def _rank_part_within_r(
    pairs: _Pairs, r: NDArray[np.int64], part: slice
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    contenders = _Contenders.of(pairs, r, part)
    above = torch.zeros(len(r), dtype=torch.int64, device=pairs.device)
    for rows, block in pairs.negative_tiles(part):
        reaching = block >= contenders.floor[rows, None]
        above[rows] += _count_rows(reaching)
        contenders.count(rows, block, reaching)
    best_rank = np.where(r > 0, above.cpu().numpy() + 1, 0)
    query, position = contenders.positions()
    best_rank[query[::-1]] = position[::-1]  # the first of a query is written last, and stays
    average_precision, r_precision = precision_within_r(position, query, r)
    return best_rank[part], average_precision[part], r_precision[part]


def _order_within_r(
    pairs: _Pairs, r: NDArray[np.int64], rows: slice
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """The same for `rows`, whose R are `r`, from all their similarities at once."""
    every = slice(0, len(pairs.answers))
    similarity, positive = pairs.similarities(rows, every), pairs.same_class(rows, every)
    if pairs.itself:
        similarity.diagonal(rows.start).fill_(-torch.inf)
        positive.diagonal(rows.start).fill_(False)
    floor = similarity.masked_fill(~positive, -torch.inf).amax(dim=1) - TIE_TOLERANCE
    above = _count_rows((similarity >= floor[:, None]) & ~positive)
    # A positive counts as lower by the tolerance, and as later where that is the similarity of a negative.
    keys = _ascending(similarity - TIE_TOLERANCE * positive) * 2 + ~positive
    nearest_is_positive = keys.topk(max(1, int(r.max())), dim=1).values % 2 == 0
    query, place = (found.cpu().numpy() for found in nearest_is_positive.nonzero(as_tuple=True))
    return np.where(r > 0, above.cpu().numpy() + 1, 0), *precision_within_r(place + 1, query, r)


@dataclass(frozen=True)
class _Contenders:
    """The positives that may stand among their query's R nearest, and how many negatives are ahead of each.

    query: (P,) int64 ascending.
    keys: (P,) int64 ascending: `query`, then the thresholds (similarity - tolerance) from high to low.
    ahead: (P,) int64: negatives that reach this threshold of their query and no higher one.
    floor: (Q,) the lowest of a query's thresholds; where nothing contends, that of its best positive.
    contended: (Q,) bool.
    """

    query: Tensor
    keys: Tensor
    ahead: Tensor
    floor: Tensor
    contended: Tensor

    @classmethod
    def of(cls, pairs: _Pairs, r: NDArray[np.int64], part: slice) -> _Contenders:
        floor = torch.full((len(r),), torch.inf, device=pairs.device)
        queries = [torch.empty(0, dtype=torch.int64, device=pairs.device)]
        thresholds = [floor[:0]]
        for rows in _windows(part.start, part.stop, pairs.tile):
            reached = _reached_by_r(pairs, rows, r[rows])
            for similarity, positive in pairs.positive_tiles(rows):
                row, column = positive.nonzero(as_tuple=True)
                threshold = similarity[row, column] - TIE_TOLERANCE
                contends = threshold > reached[row]
                queries.append(row[contends] + rows.start)
                thresholds.append(threshold[contends])
            floor[rows] = _best_positive(pairs, rows) - TIE_TOLERANCE
        query, threshold = torch.cat(queries), torch.cat(thresholds)
        floor.scatter_reduce_(0, query, threshold, "amin")
        contended = torch.zeros_like(floor, dtype=torch.bool)
        contended[query] = True
        keys, order = _sort_keys(query, threshold).sort()
        return cls(query[order], keys, torch.zeros_like(keys), floor, contended)

    def count(self, rows: slice, block: Tensor, reaching: Tensor) -> None:
        """Take in the negatives of one tile: `reaching` says which similarities in `block` are at or above the floor."""
        contended = self.contended[rows].nonzero().flatten()
        if len(contended) == 0:
            return
        row, column = reaching[contended].nonzero(as_tuple=True)
        row = contended[row]
        reached = torch.searchsorted(self.keys, _sort_keys(row + rows.start, block[row, column]))
        self.ahead.index_add_(0, reached, torch.ones_like(reached))

    def positions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(P,) query and (P,) position of each contender."""
        query, ahead = self.query.cpu().numpy(), self.ahead.cpu().numpy()
        first = np.searchsorted(query, query)
        total = np.cumsum(ahead)
        negatives = total - (total - ahead)[first]
        return query, np.arange(len(query)) - first + 1 + negatives


def _sort_keys(query: Tensor, similarity: Tensor) -> Tensor:
    """Integers that ascend by query, and within a query as the float32 similarity descends; exact."""
    return (query << 32) - _ascending(similarity)


def _ascending(similarity: Tensor) -> Tensor:
    """int64 in the order of float32 numbers."""
    bits = (similarity + 0.0).view(torch.int32)  # + 0.0 makes -0.0 the 0.0 it equals
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(torch.int64)


def _reached_by_r(pairs: _Pairs, rows: slice, r: NDArray[np.int64]) -> Tensor:
    """(B,) a similarity that at least R negatives of each query reach, high if it can be had; -inf where none is known.

    It is that of the R-th nearest negative in an even sample of S gallery rows, with the largest R of the rows, which is like
    the others'. About R G / S negatives of each query reach it and have to be listed later; at S = 2 sqrt(R G) sampling and
    listing cost about the same.
    """
    most = max(1, int(r.max()))
    size = min(len(pairs.answers), math.ceil(2 * math.sqrt(most * len(pairs.answers))))
    sample = torch.arange(size, device=pairs.device) * len(pairs.answers) // size
    units, classes = pairs.answers.units[sample], pairs.answers.classes[sample]
    reached = []
    for window in _windows(rows.start, rows.stop, max(1, _SAMPLED_AT_ONCE // size)):
        similarity = pairs.queries.units[window] @ units.T
        similarity.masked_fill_(pairs.queries.classes[window, None] == classes, -torch.inf)
        reached.append(similarity.topk(most).values[:, -1])
    return torch.cat(reached)
