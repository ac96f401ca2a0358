"""Counts in words: what a message says of one thing is said of one."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """The number with its noun, and with the verb where both are given with one.

    >>> counted(1, "class"), counted(1200, "query"), counted(2, "image is lost", "images are lost")
    ('1 class', '1,200 queries', '2 images are lost')
    """
    return f"{number:,} {noun if number == 1 else plural or _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith(("s", "x", "sh", "tch", "rch")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
