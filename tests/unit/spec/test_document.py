from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from see_tune.errors import SpecError
from see_tune.spec.document import Flag, beneath, dotted, override, parse, read_text, scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1.0e-5", 1e-5),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-7", -7),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        (".inf", float("inf")),
        ("-.Inf", -float("inf")),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "y", "1:30", "1_000", "2024-06-01", "0b11", "=", "<<", "tRUE"])
def test_what_only_yaml_1_1_converts_stays_text(text: str) -> None:
    assert scalar(text) == text


def test_a_whole_number_without_end_is_no_exact_one() -> None:
    assert scalar("9" * 5000) == float("inf")


@given(st.floats(allow_nan=False))
@settings(deadline=None)
def test_every_float_that_python_writes_is_read_back(number: float) -> None:
    text = repr(number).replace("inf", ".inf")
    assert scalar(text) == number


def test_quoted_scalars_are_text() -> None:
    assert parse("a: '1'\nb: \"true\"\n", "f").values == {"a": "1", "b": "true"}


def test_every_key_and_item_knows_its_line() -> None:
    document = parse("a:\n  b: 1\n  c:\n    - 2\n    - d: 3\n", "f.yaml")
    assert document.place(("a", "b")) == "f.yaml:2"
    assert document.place(("a", "c", 1, "d")) == "f.yaml:5"


def test_an_unknown_path_stands_where_the_nearest_thing_around_it_does() -> None:
    document = parse("a:\n  b: 1\n", "f.yaml")
    assert document.place(("a", "x", "y")) == "f.yaml:1"
    assert not document.states(("a", "x"))


def test_anchors_repeat_a_block() -> None:
    document = parse("a: &block {n: 1}\nb: *block\n", "f.yaml")
    assert document.values["b"] == {"n": 1}


def test_a_bomb_of_aliases_is_refused() -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    with pytest.raises(SpecError, match="more values than any study has"):
        parse("\n".join(["a0: &a0 [x]", *levels]), "f.yaml")


def test_deep_nesting_is_refused_before_it_is_built() -> None:
    with pytest.raises(SpecError, match="nested too deeply"):
        parse("a: " + "[" * 3000 + "]" * 3000, "f.yaml")


@given(st.text())
@settings(deadline=None, max_examples=100)
def test_any_text_is_read_or_refused_with_its_name(text: str) -> None:
    try:
        document = parse(text, "f.yaml")
    except SpecError as error:
        assert str(error).startswith("f.yaml:")
    else:
        assert all(isinstance(key, str) for key in document.values)


_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.from_regex(r"[a-z]{1,6}", fullmatch=True),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"k[a-z]{1,3}", fullmatch=True), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.from_regex(r"k[a-z]{1,3}", fullmatch=True), _plain, min_size=1))
@settings(deadline=None, max_examples=50)
def test_what_the_yaml_library_writes_is_read_back(values: dict[str, object]) -> None:
    assert parse(yaml.safe_dump(values), "f.yaml").values == values


def test_an_override_lies_over_the_file_and_names_itself() -> None:
    document = override(parse("see: {n_aug: 4}\n", "f.yaml"), ["see.n_aug=8", "train.epochs=2"])
    assert document.values == {"see": {"n_aug": 8}, "train": {"epochs": 2}}
    assert document.place(("see", "n_aug")) == "--set see.n_aug=8"
    assert document.place(("train", "epochs")) == "--set train.epochs=2"


def test_a_flags_value_is_no_yaml_and_stands_at_its_flag() -> None:
    document = override(parse("study: s\n", "f.yaml"), [Flag("--name", "study", "2024")])
    assert document.values == {"study": "2024"}
    assert document.place(("study",)) == "--name 2024"


def test_an_absent_file_is_told_with_those_of_a_like_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("docker-compose.yml", "my-cars.yaml"):
        (tmp_path / name).touch()
    with pytest.raises(SpecError, match=r"no such file; did you mean my-cars\.yaml\?$"):
        read_text(Path("my-car.yaml"))
    with pytest.raises(SpecError, match=r"no such file; check the path, or copy one of search_spaces/$"):
        read_text(Path("study.yaml"))


def test_an_override_replaces_a_whole_block_with_its_places() -> None:
    document = override(parse("see:\n  pace: {ramp: 1.0}\n", "f.yaml"), ["see={n_aug: 2}"])
    assert document.values == {"see": {"n_aug": 2}}
    assert not document.states(("see", "pace", "ramp"))


def test_everything_after_search_is_one_key() -> None:
    document = override(parse("a: 1\n", "f.yaml"), ["search.see.n_aug={int: [1, 4]}"])
    assert document.values["search"] == {"see.n_aug": {"int": [1, 4]}}


def test_overrides_leave_the_first_document_alone() -> None:
    document = parse("see: {n_aug: 4}\n", "f.yaml")
    override(document, ["see.n_aug=8"])
    assert document.values == {"see": {"n_aug": 4}}


def test_defaults_lie_beneath_what_is_stated_even_null() -> None:
    document = beneath(parse("a: {x: 1, y: null}\n", "f.yaml"), {"a.x": 2, "a.y": 2, "a.z": 2, "b": 2})
    assert document.values == {"a": {"x": 1, "y": None, "z": 2}, "b": 2}
    assert not document.states(("a", "z"))


def test_a_path_is_written_with_dots_and_brackets() -> None:
    assert dotted(("start_with", 1, "see", "n_aug")) == "start_with[1].see.n_aug"
