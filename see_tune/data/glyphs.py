"""glyphs: the embedded dataset. Rendered type, not photographs; nothing to download, and a study on it takes minutes.

One class is a Unicode letter or digit, one image a typeface: the 18 faces that matplotlib bundles (14 DejaVu, 4 STIX
General), 32 x 32, black on white, centred. Letters that look alike (Latin A, Greek Alpha, Cyrillic A) are one class, merged
before the classes are split, or the same picture would stand in training and test under two names. About 1,400 classes.

It is here so that the whole road (search, SEE on and off, report, champion) can be walked on any machine.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from see_tune.data.table import TEST, TRAIN, ImageTable
from see_tune.errors import DatasetError
from see_tune.home import settle_matplotlib

LAYOUTS = ("none: the images are rendered from matplotlib's typefaces and kept in the cache folder",)
SIDE = 32
FONT_PX = 24
MIN_RENDERINGS = 8
# Two letters are homoglyphs when they are the same picture in one shared face of six. Below that they coincide in an italic
# or two only (n and Cyrillic pe) and are two letters everywhere else.
HOMOGLYPH_SHARE = 1 / 6
RECIPE = 1  # raised when a change here changes the images, so that an old cache is not taken for the new one

Bitmap = bytes  # SIDE * SIDE grey values, 0 is paper
Renderings = dict[str, dict[str, Bitmap]]  # character -> face -> bitmap


def read(*, cache: Path, seed: int = 0) -> ImageTable:
    """All glyphs, rendered once per cache folder; half of the classes (drawn by `seed`) train, half test."""
    folder = _rendered(cache)
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    labels = np.array(index["labels"], np.int64)
    names = tuple(index["class_names"])
    order = np.random.default_rng(np.random.SeedSequence(seed % 2**64)).permutation(len(names))
    is_train = np.isin(labels, order[: len(names) // 2])
    everywhere = np.ones(len(labels), np.bool_)
    return ImageTable(
        name="glyphs",
        root=folder,
        paths=tuple(index["paths"]),
        labels=labels,
        class_names=names,
        split=np.where(is_train, TRAIN, TEST).astype("<U10"),
        is_query=everywhere,
        is_gallery=everywhere,
        pixels=folder / "pixels.npy",
    )


def _rendered(cache: Path) -> Path:
    """The folder of the rendered images. One process renders, the others wait for it: the folder appears whole or not at all."""
    faces = _faces()
    folder = cache / f"glyphs-{_recipe_key(faces)}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                settle_matplotlib(cache)
                _build(faces, folder)
    return folder


def _faces() -> list[Path]:
    package = find_spec("matplotlib")  # looked up and not imported, which takes a good part of the whole reading
    assert package is not None  # a dependency
    assert package.origin is not None
    fonts = Path(package.origin).parent / "mpl-data" / "fonts" / "ttf"
    faces = sorted([*fonts.glob("DejaVu*.ttf"), *fonts.glob("STIXGeneral*.ttf")])
    if not faces:
        raise DatasetError(
            f"glyphs are rendered from matplotlib's typefaces, and {fonts} holds none of them. "
            "Its DejaVu*.ttf and STIXGeneral*.ttf come with every matplotlib wheel: reinstall matplotlib with pip."
        )
    return faces


def _recipe_key(faces: list[Path]) -> str:
    """What the images depend on: the faces, the renderer and this file's rules."""
    from PIL import features

    digest = hashlib.sha256(f"{RECIPE} {SIDE} {FONT_PX} {MIN_RENDERINGS} {features.version('freetype2')}".encode())
    for face in faces:
        digest.update(face.read_bytes())
    return digest.hexdigest()[:12]


def _build(faces: list[Path], folder: Path) -> None:
    classes = _classes(_render(faces))
    grey = np.frombuffer(b"".join(bitmap for images in classes.values() for bitmap in images.values()), np.uint8)
    paper = 255 - grey.reshape(-1, SIDE, SIDE, 1)
    index = {
        "class_names": list(classes),
        "labels": [number for number, images in enumerate(classes.values()) for _ in images],
        "paths": [path for images in classes.values() for path in images],
    }
    temporary = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
    try:
        np.save(temporary / "pixels.npy", np.repeat(paper, 3, axis=3))
        (temporary / "index.json").write_text(json.dumps(index), encoding="utf-8")
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _render(faces: list[Path]) -> Renderings:
    """Every letter and digit in every face that has it, in order of code points."""
    from matplotlib.ft2font import FT2Font
    from PIL import ImageFont

    renderings: Renderings = defaultdict(dict)
    for face in faces:
        font = ImageFont.truetype(str(face), FONT_PX, layout_engine=ImageFont.Layout.BASIC)
        for character in _letters_and_digits(FT2Font(str(face)).get_charmap()):
            mask = font.getmask(character, mode="L")
            width, height = mask.size
            ink = np.frombuffer(bytes(mask), np.uint8).reshape(height, width)
            if ink.any():  # a few code points are mapped to an empty glyph
                renderings[character][face.stem] = _centred(ink).tobytes()
    return {character: renderings[character] for character in sorted(renderings)}


def _letters_and_digits(code_points: Iterable[int]) -> Iterator[str]:
    """Letters and decimal digits without compatibility forms (a mathematical bold A is an A in bold, not another letter)."""
    for character in map(chr, code_points):
        category = unicodedata.category(character)
        if (category.startswith("L") or category == "Nd") and unicodedata.is_normalized("NFKC", character):
            yield character


def _centred(ink: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(h, w) ink in the middle of a SIDE x SIDE square; what is larger is scaled down to fit."""
    from PIL import Image

    height, width = ink.shape
    scale = SIDE / max(height, width)
    if scale < 1:
        ink = np.asarray(Image.fromarray(ink).resize((max(1, round(width * scale)), max(1, round(height * scale)))))
        height, width = ink.shape
    square = np.zeros((SIDE, SIDE), np.uint8)
    top, left = (SIDE - height) // 2, (SIDE - width) // 2
    square[top : top + height, left : left + width] = ink
    return square


def _classes(renderings: Renderings) -> dict[str, dict[str, Bitmap]]:
    """Class name -> image name -> bitmap: homoglyphs merged, no picture twice, classes with too few pictures dropped."""
    families: dict[str, list[str]] = defaultdict(list)
    for character, first in _homoglyphs(renderings).items():
        families[first].append(character)
    pictures = {first: _distinct(members, renderings) for first, members in families.items()}
    owners: dict[Bitmap, int] = defaultdict(int)
    for images in pictures.values():
        for bitmap in images:
            owners[bitmap] += 1
    classes = {}
    for first, images in pictures.items():
        own = {path: bitmap for bitmap, path in images.items() if owners[bitmap] == 1}
        if len(own) >= MIN_RENDERINGS:
            classes[f"U+{ord(first):04X} {first}"] = own
    return classes


def _distinct(members: list[str], renderings: Renderings) -> dict[Bitmap, str]:
    """Each different picture of a family once, under the name of the first character and face that show it."""
    pictures: dict[Bitmap, str] = {}
    for character in members:
        for face, bitmap in renderings[character].items():
            pictures.setdefault(bitmap, f"U+{ord(character):04X}/{face}.png")
    return pictures


def _homoglyphs(renderings: Renderings) -> dict[str, str]:
    """Character -> the first character of its family (union-find over pairs that share enough pictures)."""
    shared: dict[tuple[str, str], int] = defaultdict(int)
    for group in _same_pictures(renderings):
        for position, first in enumerate(group):
            for second in group[position + 1 :]:
                shared[first, second] += 1
    parent = {character: character for character in renderings}

    def root(character: str) -> str:
        while parent[character] != character:
            character = parent[character]
        return character

    for (first, second), count in shared.items():
        faces_of_both = renderings[first].keys() & renderings[second].keys()
        if count >= HOMOGLYPH_SHARE * len(faces_of_both):
            low, high = sorted((root(first), root(second)))
            parent[high] = low
    return {character: root(character) for character in renderings}


def _same_pictures(renderings: Renderings) -> Iterator[list[str]]:
    """Groups of characters that are one picture in one face."""
    groups: dict[tuple[str, Bitmap], list[str]] = defaultdict(list)
    for character, faces in renderings.items():
        for face, bitmap in faces.items():
            groups[face, bitmap].append(character)
    return (group for group in groups.values() if len(group) > 1)
