"""Importing fast: what a person waits for at the start is mostly the import of torch and its like."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Inside it, Python does not look for garbage: a million objects come with torch and timm, nearly all of them stay, and the
    collector would go through them over and over, a fifth of the whole time."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()
