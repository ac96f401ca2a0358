"""Small trees of pictures, and tables of them, made on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from see_tune.data import glyphs
from see_tune.data.table import ImageTable, build_table

MakePictures = Callable[..., Path]
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real annotation files beside the project."""
    if not SHARED.is_dir():
        pytest.skip(f"no real annotation files at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def glyph_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("glyphs")


@pytest.fixture(scope="session")
def glyph_table(glyph_cache: Path) -> ImageTable:
    return glyphs.read(cache=glyph_cache)


@pytest.fixture
def make_pictures(tmp_path: Path) -> MakePictures:
    """Write noise JPEGs at the given relative paths below `tmp_path`/`under` and return that folder."""

    def make(*paths: str, under: str = "pictures", size: tuple[int, int] = (40, 30)) -> Path:
        rng = np.random.default_rng(len(paths))
        root = tmp_path / under
        for path in paths:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), np.uint8)).save(root / path)
        return root

    return make


@pytest.fixture
def picture_table(make_pictures: MakePictures) -> ImageTable:
    """Eight classes of three JPEGs, all of them training images."""
    paths = [f"{label}/{number}.jpg" for label in "abcdefgh" for number in range(3)]
    return build_table("folder", make_pictures(*paths), paths, [path[0] for path in paths], ["train"] * len(paths))
