"""`see-tune datasets`: which there are, whether one is whole, what it looks like, and a split of one's own pictures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from see_tune.cli.bar import progress_bar
from see_tune.cli.options import AsJson, DatasetRoot, HomeFolder, known_dataset, path_option, picture_option, refuse_needless_root
from see_tune.wording import counted

if TYPE_CHECKING:
    from see_tune.data.inspection import TableCheck
    from see_tune.data.table import ImageTable

commands = typer.Typer(help="List datasets, check one, look at one, split your own.", no_args_is_help=False)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A name from `see-tune datasets`.", callback=known_dataset, show_default=False)
]


@commands.callback(invoke_without_command=True)
def list_datasets(context: typer.Context, as_json: AsJson = False) -> None:
    """Without a command: every dataset, what it needs and where it is had."""
    if context.invoked_subcommand is not None:
        return
    from see_tune.data import DATASETS, dataset_layouts

    rows = [
        {"name": name, "ks": list(entry.ks), "source": entry.source, "layouts": list(dataset_layouts(name))}
        for name, entry in DATASETS.items()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(f"{row['name']:<9} R@{', '.join(map(str, row['ks']))}   {row['source']}")
        for layout in row["layouts"]:
            print(f"{'':<9} {layout}")


@commands.command()
def check(
    name: Name,
    root: DatasetRoot = None,
    allow_partial: Annotated[bool, typer.Option("--allow-partial", help="Accept counts that differ from the published.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Check that a dataset is whole. Layout, counts, images that do not decode, duplicates across the split; exit 1 with the list
    when something is wrong."""
    from see_tune.data.inspection import check_table
    from see_tune.home import find_home

    table = _read(name, root, home, allow_partial=allow_partial)
    with progress_bar("decoding", as_json=as_json) as progress:
        found = check_table(table, cache=find_home(home).cache, progress=progress)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2, default=str))
    else:
        for line in _check_lines(found):
            print(line)
    return 1 if found.problems else 0


@commands.command()
def sample(
    name: Name,
    out: Annotated[Path, picture_option("--out", "The picture to write")],
    root: DatasetRoot = None,
    classes: Annotated[int, typer.Option("--classes", metavar="N", min=1, help="So many classes, a line each.")] = 10,
    home: HomeFolder = None,
) -> None:
    """Write a contact sheet: a line a class, up to ten of its images."""
    import numpy as np

    from see_tune.data.inspection import contact_sheet
    from see_tune.errors import DatasetError

    table = _read(name, root, home)
    _, firsts = np.unique(table.labels, return_index=True)
    spread = np.sort(firsts)[np.linspace(0, len(firsts) - 1, min(classes, len(firsts))).astype(int)]
    rows = [np.flatnonzero(table.labels == table.labels[first])[:10] for first in spread]
    try:
        contact_sheet(table, np.concatenate(rows), columns=10).save(out)
    except OSError as error:
        raise DatasetError(
            f"--out {out} cannot be written ({error.strerror or error}); name a file in a folder that exists"
        ) from error
    print(f"{out}: {counted(sum(map(len, rows)), 'image')} of {counted(len(rows), 'class')}, of {len(firsts):,}")


@commands.command()
def split(
    root: Annotated[
        Path,
        path_option("--root", "A folder with one folder a class."),
    ],
    out: Annotated[
        Path,
        path_option("--out", "The CSV manifest to write, in ROOT or above it.", "FILE"),
    ],
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Which classes go where is drawn by it.")] = 0,
    validation: Annotated[
        float,
        typer.Option(
            "--validation", metavar="SHARE", min=0.01, max=0.9, help="Share of the classes that become validation classes."
        ),
    ] = 0.2,
    test: Annotated[
        float, typer.Option("--test", metavar="SHARE", min=0.01, max=0.9, help="Share of the classes that become test classes.")
    ] = 0.3,
) -> None:
    """Split the classes of your own pictures, and save the split. Into training, validation and test classes."""
    from see_tune.data.manifest import write_split_manifest

    if validation + test >= 1:
        raise typer.BadParameter(f"--validation {validation} and --test {test} leave no training classes; their sum is below 1")
    table = write_split_manifest(root, out, seed=seed, fractions=(validation, test))
    for part in ("train", "validation", "test"):
        rows = table.rows(part)
        print(f"{part:<11} {_size(len(rows), len(set(table.labels[rows].tolist())))}")
    print(f"{out}   use it: dataset: {{name: manifest, root: {out.resolve()}}}")


def _read(name: str, root: Path | None, home: Path | None, *, allow_partial: bool = False) -> ImageTable:
    from see_tune.checks import unwritable
    from see_tune.data import read_table
    from see_tune.home import dataset_places, find_home

    refuse_needless_root(name, root)
    at_home = find_home(home)
    if (unfit := unwritable(at_home.root)) is not None:
        raise unfit
    return read_table(name, places=dataset_places(name, root), cache=at_home.cache, allow_partial=allow_partial)


def _check_lines(found: TableCheck) -> list[str]:
    lines = [f"{found.name}  {found.root}  fingerprint {found.fingerprint}"]
    lines += [f"  {part:<11} {_size(found.images[part], found.classes[part])}" for part in found.images]
    lines.append(f"  smallest class {found.smallest[0]} ({found.smallest[1]}), largest {found.largest[0]} ({found.largest[1]})")
    lines += [f"  note: {note}" for note in found.notes]
    lines += [f"  wrong: {problem}" for problem in found.problems]
    return [*lines, "nothing wrong" if not found.problems else f"{counted(len(found.problems), 'thing is', 'things are')} wrong"]


def _size(images: int, classes: int) -> str:
    return f"{counted(images, 'image'):>14} in {counted(classes, 'class'):>14}"
