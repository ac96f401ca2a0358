"""`see-tune export DATASET`: the champion as a folder that loads without see-tune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from see_tune.cli.best import Tracking
from see_tune.cli.options import Dataset, HomeFolder, path_option

Version = Annotated[int | None, typer.Option("--version", metavar="N", min=1, help="Default: the champion.", show_default=False)]


def export(
    dataset: Dataset,
    out: Annotated[Path, path_option("--out", "A new folder.")],
    format_: Annotated[
        Literal["safetensors", "onnx"], typer.Option("--format", help="Loads with torch and timm, or with onnxruntime.")
    ] = "safetensors",
    version: Version = None,
    tracking: Tracking = "auto",
    home: HomeFolder = None,
) -> None:
    """Write the champion as a folder that loads without see-tune. Its preprocessing is in it, with the lines that join them."""
    from see_tune.home import find_home
    from see_tune.serving.export import export_model
    from see_tune.stored import open_model, resolve_version

    uri = resolve_version(model_uri(dataset, version), find_home(home), tracking)
    export_model(open_model(uri, find_home(home), tracking), out, source=uri, format_=format_)
    print(f"{out}   python {out / 'embed.py'} OUT.npy IMAGE...")


def model_uri(dataset: str, version: int | None) -> str:
    """What the registry calls the champion, or a version of one's choice."""
    return f"models:/see-tune.{dataset}" + (f"/{version}" if version else "@champion")
