"""Importing fast: what a person waits for at the start is mostly the import of torch and its like."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


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


def put_off(name: str) -> None:
    """Whoever imports the module `name` from now on gets a stand-in at once; the module is imported when something of it is used.

    For what a package imports and hardly ever uses. (Python's own LazyLoader imports it as soon as anybody says `import`, which
    looks at the module's ``__spec__``.)
    """
    if name not in sys.modules:
        sys.modules[name] = _StandIn(name)


class _StandIn(ModuleType):
    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # whoever looks through all modules, as `inspect` does, uses none
            raise AttributeError(attribute)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), attribute)
