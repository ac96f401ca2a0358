"""Pictures in rows: a query and what was found for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageOps

RIGHT, WRONG, QUERY = "#2e8b57", "#c0392b", "#1d2733"

_FRAME_PX = 4
_GAP_PX = 6
_AFTER_QUERY_PX = 14


@dataclass(frozen=True)
class Tile:
    """One picture and the colour of its frame; None: no frame."""

    picture: Image.Image
    frame: str | None = None


def draw_sheet(lines: Sequence[Sequence[Tile]], *, side: int = 96) -> Image.Image:
    """One line of square tiles of `side` pixels a query, on white; the first tile of a line stands apart."""
    across = max((len(line) for line in lines), default=1)
    step = side + _GAP_PX
    sheet = Image.new("RGB", (across * step + _AFTER_QUERY_PX + _GAP_PX, max(len(lines), 1) * step + _GAP_PX), "white")
    for row, line in enumerate(lines):
        for column, tile in enumerate(line):
            left = _GAP_PX + column * step + (_AFTER_QUERY_PX if column else 0)
            sheet.paste(_framed(tile, side), (left, _GAP_PX + row * step))
    return sheet


def _framed(tile: Tile, side: int) -> Image.Image:
    inner = side - 2 * _FRAME_PX
    picture = ImageOps.pad(tile.picture.convert("RGB"), (inner, inner), color="white")
    return ImageOps.expand(picture, border=_FRAME_PX, fill=tile.frame or "white")
