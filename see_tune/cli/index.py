"""`see-tune index` and `see-tune query`: retrieval over one's own pictures with a champion."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from see_tune.cli.bar import progress_bar
from see_tune.cli.best import Tracking
from see_tune.cli.export import Version, model_uri
from see_tune.cli.options import AsJson, Dataset, HomeFolder, path_option, picture_option
from see_tune.wording import counted

if TYPE_CHECKING:
    from see_tune.home import Home
    from see_tune.serving.index import Hit, Index


def index(
    dataset: Dataset,
    images: Annotated[
        Path,
        path_option("--images", "A folder of pictures; those below count too."),
    ],
    out: Annotated[Path, path_option("--out", "The index's folder.")],
    update: Annotated[bool, typer.Option("--update", help="Embed what is new, forget what is gone; the model stays.")] = False,
    version: Version = None,
    tracking: Tracking = "auto",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Embed a folder of pictures with the champion. `see-tune query` looks pictures up in it."""
    from see_tune.home import find_home
    from see_tune.serving.index import build_index, read_index, refuse_another, update_index
    from see_tune.stored import open_model, resolve_version

    at_home, uri = find_home(home), model_uri(dataset, version)
    with progress_bar("embedding", as_json=as_json) as progress:
        if update:
            made = read_index(out)
            source = made.source
            refuse_another(made, uri.partition("@")[0], images)
            if version is None:
                _say_of_another_champion(made, uri, at_home, tracking)
            changes = update_index(made, progress=progress)
        else:
            source = resolve_version(uri, at_home, tracking)
            changes = build_index(open_model(source, at_home, tracking), images, out, source=source, progress=progress)
    if as_json:
        print(json.dumps({"model": source, **dataclasses.asdict(changes)}, indent=2))
        return
    for path, why in changes.skipped.items():
        print(f"skipped {path}: {why}", file=sys.stderr)
    print(
        f"{out}: {counted(changes.embedded + changes.kept, 'picture')} ({changes.embedded} embedded now, "
        f"{changes.removed} removed) by {source}   see-tune query {out} IMAGE"
    )


def _say_of_another_champion(made: Index, uri: str, home: Home, tracking: str) -> None:
    """One line where the champion is another version by now; an index needs no registry, so one that is away stops nothing."""
    from see_tune.errors import UserError
    from see_tune.stored import resolve_version

    try:
        champion = resolve_version(uri, home, tracking)
    except UserError as error:
        print(f"note: {made.source} made {made.folder}; whether it is champion still can't be told: {error}", file=sys.stderr)
        return
    if champion != made.source:
        print(
            f"note: {made.folder} keeps {made.source}, which made it; the champion is {champion} by now: "
            "another --out makes an index with it",
            file=sys.stderr,
        )


def query(
    index_folder: Annotated[Path, typer.Argument(metavar="INDEX", help="From `see-tune index`.", show_default=False)],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="Pictures to look up.", show_default=False)],
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="So many answers.")] = 10,
    sheet: Annotated[
        Path | None,
        picture_option("--sheet", "Also as a picture"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the pictures of an index that look most like given ones. By cosine similarity, exactly."""
    from see_tune.serving.index import query_index, read_index

    found = query_index(read_index(index_folder), images, top=top)
    if sheet is not None:
        _write_sheet(sheet, images, found)
    if as_json:
        answers = [
            {"query": str(image), "hits": [_as_json(hit) for hit in hits]} for image, hits in zip(images, found, strict=True)
        ]
        print(json.dumps(answers, indent=2))
        return
    for image, hits in zip(images, found, strict=True):
        print(image)
        for hit in hits:
            print(f"{hit.rank:4d}  {hit.similarity:.3f}  {hit.path}")


def _as_json(hit: Hit) -> dict[str, object]:
    return {**dataclasses.asdict(hit), "path": str(hit.path)}


def _write_sheet(sheet: Path, images: list[Path], found: list[list[Hit]]) -> None:
    """One line a query; an answer that is gone meanwhile is left out."""
    from see_tune.data.pictures import open_rgb
    from see_tune.errors import UserError
    from see_tune.serving.sheet import QUERY, Tile, draw_sheet

    lines = [
        [Tile(open_rgb(image), QUERY), *(Tile(open_rgb(hit.path)) for hit in hits if hit.path.is_file())]
        for image, hits in zip(images, found, strict=True)
    ]
    try:
        draw_sheet(lines).save(sheet)
    except OSError as error:
        raise UserError(
            f"--sheet {sheet} cannot be written ({error.strerror or error}); name a file in a folder that exists"
        ) from error
