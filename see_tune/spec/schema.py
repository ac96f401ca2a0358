"""The JSON Schema of a study file, for editors: they complete keys and underline mistakes while one types.

    # yaml-language-server: $schema=./schema.json

It is derived from the models. `load` stays the judge: a schema cannot know what a key means beside another.
"""

from __future__ import annotations

import copy
from typing import Any

from see_tune.spec import keys

_ENTRIES = {
    "number": ("FloatEntry", "IntEntry", "ChoiceEntry"),
    "whole number": ("IntEntry", "ChoiceEntry"),
    "boolean": ("ChoiceEntry",),
    "choice": ("ChoiceEntry",),
    "name": ("ChoiceEntry",),
}


def study_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12, of the YAML as users write it."""
    schema: dict[str, Any] = _untitled(copy.deepcopy(keys.model_schema()))
    properties = {name: schema["properties"][name] for name in ("study", *schema["properties"])}
    properties["search"] |= {
        "properties": {name: _search_entry(name) for name in keys.searchable()},
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A see-tune study",
        **{key: value for key, value in schema.items() if key not in ("title", "properties", "$defs")},
        "properties": properties,
        "$defs": schema["$defs"],
    }


def _search_entry(name: str) -> dict[str, Any]:
    forms = dict.fromkeys(form for kind in sorted(keys.kinds(name)) for form in _ENTRIES[kind])
    description = keys.schemas()[name].get("description", name)
    return {"description": description, "oneOf": [{"$ref": f"#/$defs/{form}"} for form in forms]}


def _untitled(schema: Any) -> Any:
    """Without pydantic's titles, which only repeat the keys. A *property* called title is a dict and stays."""
    if isinstance(schema, dict):
        return {key: _untitled(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))}
    return [_untitled(item) for item in schema] if isinstance(schema, list) else schema
