from __future__ import annotations

import pytest

from see_tune.spec.words import describe, describe_key, shown


def test_keys_are_described_in_words() -> None:
    assert describe("data.workers") == "a whole number, at least 0, or auto"
    assert describe("see.gradient") == "one of proxies, all"
    assert describe("train.optimizer.clip_norm") == "a number, above 0, or null"


def test_what_is_inside_lists_and_search_entries_is_described_too() -> None:
    assert describe_key("evaluate.ks[1]") == "a whole number, at least 1"
    assert describe_key("search.see.n_aug.int") == "[low, high], each a whole number"
    assert describe_key("search.see.n_aug.when.loss.name") == "a list"


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, "nothing (null)"), (True, "the boolean true"), ("8", "the text '8'"), (8, "the number 8"), ({}, "a block of keys")],
)
def test_a_value_is_shown_with_its_type(value: object, words: str) -> None:
    assert shown(value) == words
