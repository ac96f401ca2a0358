"""What is said of one thing is said of one, in every message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import see_tune
from see_tune.wording import counted

PACKAGE = Path(see_tune.__file__).parent
PLURAL = re.compile(
    r"((?!and )\w+ )?(classes|images|pictures|trials|epochs|seeds|folds|queries|things|events|cores|studies|rows|checkpoints|"
    r"dimensions|versions|embeddings|fields|files|nodes|problems)\b"
)


@pytest.mark.parametrize(
    ("noun", "plural"),
    [
        ("image", "images"),
        ("class", "classes"),
        ("query", "queries"),
        ("study", "studies"),
        ("day", "days"),
        ("epoch", "epochs"),
        ("batch", "batches"),
    ],
)
def test_plurals_of_regular_nouns(noun: str, plural: str) -> None:
    assert (counted(1, noun), counted(0, noun), counted(1200, noun)) == (f"1 {noun}", f"0 {plural}", f"1,200 {plural}")


def _followed_by_a_plural(file: Path) -> Iterator[str]:
    """Numbers that are put before a fixed plural; "3 of {n} images", and what is never 1 (a constant), may be."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        parts = [ast.Constant(""), *node.values]
        for before, value, after in zip(parts, parts[1:], parts[2:], strict=False):
            if not (isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)):
                continue
            said = str(before.value) if isinstance(before, ast.Constant) else ""
            constant = isinstance(value.value, ast.Name) and value.value.id.isupper()
            if PLURAL.match(str(after.value).removeprefix(" ")) and not said.endswith(("of ", "of the ")) and not constant:
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"


def test_no_message_puts_a_number_before_a_fixed_plural() -> None:
    assert not [found for file in sorted(PACKAGE.rglob("*.py")) for found in _followed_by_a_plural(file)]
