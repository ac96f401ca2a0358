"""Keys and values in words, for messages: what a key takes, what was found instead, what was probably meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

from see_tune.spec import keys
from see_tune.spec.document import scalar
from see_tune.spec.keys import Schema


def describe(name: str) -> str:
    """What a known key takes, in words: ``a whole number, at least 1``."""
    return _in_words(keys.schemas()[name])


def describe_key(name: str) -> str:
    """As `describe`, also for what is inside a list or a search entry."""
    schema = _schema_of(name)
    return _in_words(schema) if schema else "another form; `see-tune schema` prints them all"


def _in_words(schema: Schema) -> str:
    schema = keys.resolved(schema)
    if "anyOf" in schema:
        return ", or ".join(_in_words(option) for option in schema["anyOf"])
    if "enum" in schema:
        return f"one of {', '.join(str(option) for option in schema['enum'])}"
    if "const" in schema:
        return str(schema["const"])
    if "properties" in schema:
        return f"a block with the keys {', '.join(schema['properties'])}"
    if schema.get("type") == "array":
        return _describe_list(schema)
    return ", ".join([_NOUNS.get(schema.get("type", ""), "a value"), *_bounds(schema)])


def _describe_list(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[low, high], each {_in_words(schema['prefixItems'][0])}"
    return f"a list, each item {_in_words(schema['items'])}" if schema.get("items") else "a list"


_NOUNS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "null": "null",
    "object": "a block of keys",
}


def _bounds(schema: Schema) -> list[str]:
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    bounds = [f"{word} {schema[key]:g}" for key, word in words.items() if key in schema]
    return [*bounds, schema["description"]] if "pattern" in schema else bounds  # words say more than a regular expression


def _schema_of(name: str) -> Schema | None:
    """The schema of a key, also of a list's item (``evaluate.ks[1]``) and inside a search entry; None where unknown."""
    key, item, _ = name.partition("[")
    if key.startswith("search.") and ".when." in key:
        return {"type": "array"}
    schema = keys.schemas().get(key) or (_entry_schema(key.rpartition(".")[2]) if key.startswith("search.") else None)
    if schema is None or not item:
        return schema
    lists = [option for option in _options(schema) if option.get("type") == "array"]
    inner: Schema | None = lists[0].get("items") or next(iter(lists[0].get("prefixItems", [])), None) if lists else None
    return inner


def _entry_schema(key: str) -> Schema | None:
    """What a key inside a search entry takes: the forms first, since `log` and `when` are the same in all."""
    entries = [keys.model_schema()["$defs"][name]["properties"] for name in ("FloatEntry", "IntEntry", "ChoiceEntry")]
    return next((keys.resolved(entry[key]) for entry in entries if key in entry), None)


def complaint(detail: ErrorDetails, name: str) -> str:
    """One of pydantic's errors on the key `name`, in our words: what was found, what is valid, what to do."""
    if detail["type"] == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    found, schema = detail["input"], _schema_of(name)
    valid = describe_key(name)
    advice = ""
    if isinstance(found, str):
        options = [str(option) for part in _options(schema or {}) for option in part.get("enum", [])]
        unquoted = scalar(found)
        advice = keys.nearest(found, options) or ("" if isinstance(unquoted, str) or not found else "; remove the quotes")
    return f"found {shown(found)}; valid: {valid}{advice}"


def _options(schema: Schema) -> list[Schema]:
    return [keys.resolved(option) for option in schema.get("anyOf", [schema])]


def shown(value: Any) -> str:
    """A value as a user knows it from YAML, with its type where that may be what is wrong."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, str):
        return f"the text {value[:80]!r}"
    if isinstance(value, Mapping):
        return "a block of keys"
    return f"the list {list(value)}" if isinstance(value, list | tuple) else f"the number {value}"
