from __future__ import annotations

import json
from pathlib import Path

import pytest

from see_tune.spec.document import parse
from see_tune.spec.schema import study_schema

SHIPPED = Path(__file__).parents[3] / "search_spaces"
FILES = sorted(SHIPPED.glob("*.yaml"))


def test_the_committed_schema_is_current() -> None:
    committed = json.loads((SHIPPED / "schema.json").read_text())
    assert committed == study_schema(), "write it again: see-tune schema > search_spaces/schema.json"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_shipped_file_names_the_schema_and_validates(file: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = file.read_text()
    assert text.startswith("# yaml-language-server: $schema=./schema.json\n")
    jsonschema.Draft202012Validator(study_schema()).validate(parse(text, file.name).values)


def test_the_schema_is_a_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(study_schema())


@pytest.mark.parametrize(
    "search",
    [
        {"see.n_agu": {"int": [1, 4]}},
        {"see.n_aug": {"float": [1, 4]}},
        {"see.gradient": {"int": [1, 4]}},
        {"see.n_aug": [1, 4]},
        {"train.epochs": {"int": [1, 4]}},
        {},
    ],
)
def test_an_editor_underlines_wrong_search_entries(search: dict[str, object]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    values = {"study": "s", "dataset": {"name": "sop"}, "search": search}
    assert not jsonschema.Draft202012Validator(study_schema()).is_valid(values)


def test_final_may_be_none_in_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    values = {"study": "s", "dataset": {"name": "sop"}, "search": {"see.lambda": {"float": [0.1, 1]}}, "final": "none"}
    jsonschema.Draft202012Validator(study_schema()).validate(values)


def test_keys_are_written_as_users_write_them() -> None:
    see = study_schema()["$defs"]["SEESpec"]["properties"]
    assert "lambda" in see
    assert "lambda_" not in see
    assert "split" not in study_schema()["properties"]
