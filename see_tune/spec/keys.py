"""Every key of a study by its dotted YAML name: which there are, what each takes, whether a search may vary it.

All of it is derived from the models' JSON schema, so that a field added to ``spec/models.py`` is known here, in error
messages, in the editor schema and to the search at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal

from see_tune.spec.models import StudySpec, TrialSpec

Schema = dict[str, Any]
Kind = Literal["whole number", "number", "boolean", "choice", "name"]

PER_TRIAL = ("split", "stop_epoch", "members")
"""Fields of a TrialSpec that the study sets and no file may."""

_ONE_FOR_THE_STUDY = {
    "seed": "it is the same for every trial, so that trials differ by their searched values alone",
    "objective": "trials are compared by one objective",
    "dataset": "a study has one dataset",
    "data": "trials are compared on the same pictures",
    "evaluate": "trials are measured alike",
    "model.weights": "a file's name is no dimension to search; search model.backbone",
    "model.channels_last": "it changes speed, not the model",
    "model.compile": "it changes speed, not the model",
    "train.epochs": "one horizon for all trials: learning rate, pace and pruning run against it",
    "train.amp": "one precision a study",
    "train.micro_batch": "it changes memory, not the result",
}
_SEARCHABLE_TEXT = ("model.backbone",)


@cache
def model_schema() -> Schema:
    """The JSON schema of StudySpec, by alias, without what only a study sets."""
    schema = StudySpec.model_json_schema(by_alias=True)
    for name in PER_TRIAL:
        del schema["properties"][name]
    return schema


@cache
def schemas() -> dict[str, Schema]:
    """Every key of a study file, blocks included, as dotted name -> JSON schema with references resolved."""
    found: dict[str, Schema] = {}
    _collect(model_schema(), "", found)
    return found


def _collect(schema: Schema, prefix: str, found: dict[str, Schema]) -> None:
    for name, raw in schema.get("properties", {}).items():
        field = resolved(raw)
        found[prefix + name] = field
        for option in field.get("anyOf", [field]):
            _collect(resolved(option), f"{prefix}{name}.", found)


def resolved(schema: Schema) -> Schema:
    """The schema with its own ``$ref`` followed."""
    if "$ref" not in schema:
        return schema
    target: Schema = model_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def children(block: str) -> list[str]:
    """Names of the keys directly inside a dotted block; "" is the file itself."""
    prefix = f"{block}." if block else ""
    return [name.removeprefix(prefix) for name in schemas() if name.startswith(prefix) and "." not in name.removeprefix(prefix)]


@cache
def trial_keys() -> dict[str, Schema]:
    """Every value (and no block) of a TrialSpec, by dotted name."""
    blocks = {field.alias or name for name, field in TrialSpec.model_fields.items()}
    return {name: schema for name, schema in schemas().items() if name.split(".")[0] in blocks and "properties" not in schema}


@cache
def searchable() -> dict[str, Schema]:
    """Every key that `search` may vary, by dotted name."""
    return {name: schema for name, schema in trial_keys().items() if why_fixed(name) is None}


def why_fixed(name: str) -> str | None:
    """Why the known key `name` cannot be searched; None where it can."""
    for key, reason in _ONE_FOR_THE_STUDY.items():
        if name == key or name.startswith(f"{key}."):
            return reason
    schema = schemas()[name]
    if "properties" in schema:
        return f"it is a block; search one of its keys: {', '.join(children(name))}"
    if name not in trial_keys():
        return "it belongs to the study and not to a trial"
    return None if kinds(name) else "it is neither a number, nor a boolean, nor a choice"


def kinds(name: str) -> frozenset[Kind]:
    """What a searched value of this key may be."""
    schema = schemas()[name]
    found: set[Kind] = {"name"} if name in _SEARCHABLE_TEXT else set()
    for option in schema.get("anyOf", [schema]):
        if "enum" in option or "const" in option:
            found.add("choice")
        elif option.get("type") in _KINDS:
            found.add(_KINDS[option["type"]])
    return frozenset(found)


_KINDS: dict[str, Kind] = {"integer": "whole number", "number": "number", "boolean": "boolean"}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested blocks as dotted names; lists stay as they are.

    >>> flat({"see": {"lambda": 0.2, "pace": {"ramp": 1.0}}})
    {'see.lambda': 0.2, 'see.pace.ramp': 1.0}
    """
    return dict(leaves(values, prefix))


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted name; a name comes twice where it is written both ways."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def nearest(word: str, valid: Iterable[str], prefix: str = "") -> str:
    """``; did you mean X?`` or nothing. A name that only lacks its block counts as near: ``n_aug``, see.n_aug."""
    names = list(valid)
    last = word.rpartition(".")[2]
    best = difflib.get_close_matches(word, names, n=1, cutoff=0.6) or [name for name in names if name.rpartition(".")[2] == last]
    return f"; did you mean {prefix}{best[0]}?" if best else ""
