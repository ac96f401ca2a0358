"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

_PICTURES = (".png", ".jpg", ".jpeg", ".webp")
_FORMATS = f"{', '.join(_PICTURES[:-1])} or {_PICTURES[-1]}"

StudyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A study's YAML, e.g. search_spaces/glyphs.yaml.", show_default=False)
]


def path_option(flag: str, about: str, metavar: str = "DIR") -> Any:
    """An option that names a path."""
    return typer.Option(flag, parser=_named_path, metavar=metavar, help=about, show_default=False)


def _named_path(text: str) -> Path:
    """An empty one is a variable that was never set, and Python would take it for ``.``."""
    if not text:
        raise ValueError("it is empty; name a path, or leave the option out")
    return Path(text)


def picture_option(flag: str, about: str) -> Any:
    """An option that names a picture to write, in the format that its suffix says."""
    return typer.Option(flag, parser=_named_picture, metavar="FILE", help=f"{about}: {_FORMATS}.", show_default=False)


def _named_picture(text: str) -> Path:
    path = _named_path(text)
    if path.suffix.lower() not in _PICTURES:
        raise ValueError(f"{text} names no kind of picture; its suffix is to be {_FORMATS}")
    return path


def known_dataset(name: str | None) -> str | None:
    """A dataset's name, or none where it may be left out. Raises: DatasetError with those that there are."""
    if name is not None:
        from see_tune.data import dataset_layouts

        dataset_layouts(name)
    return name


def refuse_needless_root(name: str, root: Path | None) -> None:
    """Raises: DatasetError where a folder is named for a dataset that lies in none."""
    from see_tune.data import DATASETS
    from see_tune.errors import DatasetError

    if root is not None and DATASETS[name].embedded:
        raise DatasetError(
            f"--root {root}: {name} is embedded and read from no folder; leave --root out. One's own pictures are the datasets "
            "folder (one directory a class) and manifest (a CSV)"
        )


def dataset_title(name: str | None) -> str | None:
    """What a dataset may be called, or none where it may be left out; the registry knows whether one is. Raises: DatasetError."""
    if name is not None:
        from see_tune.data import TITLE
        from see_tune.errors import DatasetError

        if not re.fullmatch(TITLE, name):
            raise DatasetError(
                f"no dataset can be called {name!r}; valid: a name from `see-tune datasets`, or the dataset.title of a study"
            )
    return name


HomeFolder = Annotated[
    Path | None,
    path_option("--home", "Folder for everything written; default SEE_TUNE_HOME, then ./runs."),
]
Dataset = Annotated[
    str,
    typer.Argument(metavar="DATASET", help="A dataset's name, or its title.", callback=dataset_title, show_default=False),
]
StudyName = Annotated[str, typer.Argument(metavar="NAME", help="A name from `see-tune list`.", show_default=False)]
DatasetRoot = Annotated[
    Path | None,
    path_option("--root", "The dataset's folder; default $SEE_TUNE_DATA/NAME, then ./data/NAME."),
]
Until = Annotated[Literal["search", "final"], typer.Option("--until", help="search: end before the final phase.")]
Trials = Annotated[
    int | None,
    typer.Option("--trials", metavar="N", help="Search trials in total; extends a finished study.", show_default=False),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Another name for the study.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key of the file; repeatable.", show_default=False),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Run the trials on this Ray cluster: auto (RAY_ADDRESS, or the Ray on this machine) or HOST:PORT of its head. "
        "Default: this machine alone, whatever RAY_ADDRESS says.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
ClusterAddress = Annotated[
    str | None,
    typer.Option("--address", metavar="URL", help="Ask the cluster whose jobs API is there.", show_default=False),
]
