"""What the numbers look like: queries with what was found for them, and a map of the embeddings.

The first final model of the side that was chosen embeds the test classes once more, after everything has been decided. It
needs the dataset and the model's weights in place; where they are not, the report says so and goes without.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from PIL import Image
from plotly.colors import qualitative

from see_tune.data.pictures import Images
from see_tune.data.splits import Split, split_table
from see_tune.data.table import ImageTable
from see_tune.errors import SeeTuneError
from see_tune.evaluation import rank_queries
from see_tune.evaluation.embed import embed
from see_tune.evaluation.neighbours import nearest
from see_tune.home import Home
from see_tune.report.document import Block, Figure, Paragraph, Picture, Section
from see_tune.report.figures import lay_out
from see_tune.report.record import StudyRecord
from see_tune.report.summary import final_rows
from see_tune.serving.sheet import QUERY, RIGHT, WRONG, Tile, draw_sheet
from see_tune.training.parts import amp_dtype, make_loader, open_table, pick_device
from see_tune.training.trainer import load_trained
from see_tune.wording import counted

_QUERIES = 12  # of each kind
_NEIGHBOURS = 8
_MAP_CLASSES = 20
_SEED = 0


@dataclass(frozen=True)
class EmbeddedTest:
    """The test classes as one model sees them. gallery is None where each query is looked up among all others.

    queries: (Q, D), gallery: (G, D) or None, rows of norm 1.
    """

    table: ImageTable
    split: Split
    queries: NDArray[np.float32]
    gallery: NDArray[np.float32] | None

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.table.labels[self.split.query_rows]

    @property
    def answer_rows(self) -> NDArray[np.int64]:
        """Table rows of what queries are looked up in."""
        return self.split.query_rows if self.split.gallery_rows is None else self.split.gallery_rows

    @property
    def answers(self) -> NDArray[np.float32]:
        return self.queries if self.gallery is None else self.gallery


def gallery_section(record: StudyRecord, home: Home) -> Section | None:
    """Worst and random queries with their nearest neighbours, and the map; None before a final model is there."""
    lineage = _final_lineage(record)
    if lineage is None:
        return None
    try:
        tested = _embed_test(record, home, lineage)
    except SeeTuneError as error:
        return Section("Gallery", [Paragraph(f"No gallery: {error}", is_warning=True)])
    return Section("Gallery", list(_blocks(tested, lineage)))


def _final_lineage(record: StudyRecord) -> str | None:
    """The chosen SEE configuration's run with the first final seed, if it is complete."""
    see = record.result.see
    first = final_rows(record.planned, "see", see).get(0) if see else None
    return first.lineage if first else None


def _embed_test(record: StudyRecord, home: Home, lineage: str) -> EmbeddedTest:
    stored = load_trained(record.folder.trial(lineage))
    model, spec, preprocessing = stored.model, stored.spec, stored.preprocessing
    threads = len(os.sched_getaffinity(0))
    table = open_table(spec, home, preprocessing, threads)
    split = split_table(table, **spec.split.model_dump())
    device = pick_device("auto")
    model.to(device)
    with make_loader(spec, table, preprocessing, model, threads) as loader:

        def embedded(rows: NDArray[np.int64]) -> NDArray[np.float32]:
            batches = loader.evaluate(rows, spec.evaluate.batch_size)
            return embed(model, batches, device=device, amp_dtype=amp_dtype(spec, device)).numpy()

        gallery = None if split.gallery_rows is None else embedded(split.gallery_rows)
        return EmbeddedTest(table, split, embedded(split.query_rows), gallery)


def _blocks(tested: EmbeddedTest, lineage: str) -> Iterator[Block]:
    ranks = rank_queries(
        tested.queries,
        tested.labels,
        gallery=tested.gallery,
        gallery_labels=None if tested.gallery is None else tested.table.labels[tested.answer_rows],
        within_r=False,
    )
    answered = np.flatnonzero(ranks.has_positive)
    worst = answered[np.argsort(-ranks.best_positive_rank[answered], kind="stable")][:_QUERIES]
    rest = np.setdiff1d(answered, worst)
    drawn = np.sort(np.random.default_rng(_SEED).permutation(rest)[:_QUERIES])
    first = int(ranks.best_positive_rank[worst].max())
    yield Picture(
        "gallery-worst",
        _sheet(tested, worst),
        f"The {counted(len(worst), 'worst query')} of {lineage}, left, and their {_NEIGHBOURS} nearest: green is the query's "
        f"class, red is another. The worst one's first right answer comes at rank {first}.",
    )
    if len(drawn):
        yield Picture("gallery-random", _sheet(tested, drawn), f"{counted(len(drawn), 'query')} drawn at random.")
    yield _map(tested)


def _sheet(tested: EmbeddedTest, chosen: NDArray[np.int64]) -> bytes:
    images = Images(tested.table)
    lines = []
    for query, found in zip(chosen.tolist(), neighbours_of(tested, chosen, _NEIGHBOURS), strict=True):
        tiles = [Tile(_copied(images, int(tested.split.query_rows[query])), QUERY)]
        for answer in found:
            row = int(tested.answer_rows[answer])
            right = tested.table.labels[row] == tested.labels[query]
            tiles.append(Tile(_copied(images, row), RIGHT if right else WRONG))
        lines.append(tiles)
    png = io.BytesIO()
    draw_sheet(lines).save(png, "PNG", optimize=True)
    return png.getvalue()


def _copied(images: Images, row: int) -> Image.Image:
    """Small enough that a sheet of photographs fits into memory."""
    picture = images[row].copy()
    picture.thumbnail((256, 256))
    return picture


def neighbours_of(tested: EmbeddedTest, chosen: NDArray[np.int64], k: int) -> list[list[int]]:
    """The k nearest answers to each chosen query, nearest first, itself left out where queries are the gallery."""
    own = tested.gallery is None
    most = min(k + own, len(tested.answers))
    _, rows = nearest(tested.queries[chosen], tested.answers, most, exclude_self=False)
    return [
        [answer for answer in found if not (own and answer == query)][:k]
        for query, found in zip(chosen.tolist(), rows.tolist(), strict=True)
    ]


def _map(tested: EmbeddedTest) -> Figure:
    """The embeddings of some test classes on the two axes along which they differ most."""
    classes = np.unique(tested.labels)
    drawn = np.sort(np.random.default_rng(_SEED).permutation(classes)[:_MAP_CLASSES])
    kept = np.flatnonzero(np.isin(tested.labels, drawn))
    places, share = project(tested.queries[kept])
    figure = go.Figure()
    for label, colour in zip(drawn.tolist(), qualitative.Dark24, strict=False):
        of_class = tested.labels[kept] == label
        figure.add_trace(_class_dots(places[of_class], tested.table.class_names[label], colour))
    lay_out(figure, x="first axis", y="second axis", height=560)
    figure.update_layout(legend={"orientation": "v", "x": 1.02, "y": 1, "xanchor": "left", "yanchor": "top"})
    return Figure(
        "embedding-map",
        figure,
        f"The embeddings of {counted(len(drawn), 'test class')}, drawn at random, on their first two principal axes, which hold "
        f"{share:.0%} of their variance: classes that lie on one another here may be far apart on the other axes.",
    )


def project(embeddings: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """(N, D) -> (N, 2) on the first two principal axes, and the share of the variance that these hold."""
    centred = embeddings.astype(np.float64) - embeddings.mean(0, dtype=np.float64)
    rotated, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    variance = lengths**2
    return rotated[:, :2] * lengths[:2], float(variance[:2].sum() / max(variance.sum(), np.finfo(np.float64).tiny))


def _class_dots(places: NDArray[np.float64], name: str, colour: str) -> Any:
    return go.Scatter(
        x=places[:, 0].round(4).tolist(),
        y=places[:, 1].round(4).tolist(),
        name=name,
        mode="markers",
        marker={"color": colour, "size": 7},
        hovertemplate="%{fullData.name}<extra></extra>",
    )
