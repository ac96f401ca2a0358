from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from see_tune.spec.load import differences, dump_study, identity, identity_differences, load_study, parse_study
from see_tune.spec.models import StudySpec

SHIPPED = sorted((Path(__file__).parents[3] / "search_spaces").glob("*.yaml"))
HEAD = "study: s\ndataset: {name: cars196}\nsearch: {see.n_aug: {int: [1, 64]}}\n"


def spec(*overrides: str, text: str = HEAD) -> StudySpec:
    return parse_study(text, "f.yaml", overrides).spec


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_frozen_study_loads_to_an_equal_spec_and_space(file: Path) -> None:
    loaded = load_study(file)
    again = parse_study(dump_study(loaded.spec), "study.yaml")
    assert (again.spec, again.space, again.trial_zero) == (loaded.spec, loaded.space, loaded.trial_zero)


@pytest.mark.parametrize("name", ["1e4", "0o17", "2024", "no", "null", "true", "1.5", "a-b_c.d"])
def test_a_name_that_looks_like_something_else_survives(name: str) -> None:
    first = spec(text=HEAD.replace("study: s", f'study: "{name}"'))
    assert spec(text=dump_study(first)).study == name


@given(st.text(max_size=20), st.floats(min_value=1e-9, max_value=1e9))
@example(root="\x85", decay=1.0)
@example(root="", decay=1e-05)
@settings(deadline=None, max_examples=30)
def test_any_text_and_number_survives(root: str, decay: float) -> None:
    first = spec()
    values = first.model_dump(by_alias=True, exclude={"split", "stop_epoch", "members"})
    values["dataset"]["root"] = root
    values["train"]["optimizer"]["weight_decay"] = decay
    changed = StudySpec.model_validate(values, by_alias=True)
    assert spec(text=dump_study(changed)) == changed


def test_a_default_outside_its_range_survives() -> None:
    loaded = parse_study(HEAD.replace("int: [1, 64]", "int: [16, 64]"), "f.yaml")
    again = parse_study(dump_study(loaded.spec), "study.yaml")
    assert (again.spec, again.trial_zero) == (loaded.spec, None)


def test_no_final_phase_survives() -> None:
    assert spec(text=dump_study(spec("final=none"))).final is None


def test_differences_name_each_key_once_with_both_values() -> None:
    changes = differences(spec(), spec("see.lambda=0.3", "budget.trials=99", "search.see.lambda={float: [0.1, 1]}"))
    assert changes == [
        ("see.lambda", 0.2, 0.3),
        ("budget.trials", 60, 99),
        ("search.see.lambda", None, {"float": [0.1, 1.0]}),
    ]


@pytest.mark.parametrize(
    "change",
    [
        "dataset.name=cub200",
        "validation.fraction=0.3",
        "objective=val_map_at_r",
        "train.epochs=50",
        "see.lambda=0.3",
        "model.embedding_dim=256",
        "loss.name=arcface",
        "seed=1",
        "protocol=paper",
        "pruner.name=median",
    ],
)
def test_what_decides_a_trials_number_is_identity(change: str) -> None:
    key = change.partition("=")[0]
    assert [name for name, _, _ in identity_differences(spec(), spec(change))] == [key]


@pytest.mark.parametrize(
    "change",
    [
        "dataset.root=/elsewhere",
        "data.cache=true",
        "train.micro_batch=4",
        "budget.trials=99",
        "resources.max_parallel=1",
        "tracking.uri=http://host:5000",
        "failure.retries=3",
        "final=none",
        "validation.rerank_top=0",
        "sampler.name=random",
        "search.see.n_aug={int: [1, 8]}",
        "search.see.lambda={float: [0.1, 1]}",
        "see.n_aug=4",
        "start_with=[{see.n_aug: 4}]",
    ],
)
def test_what_is_spent_found_or_searched_is_not_identity(change: str) -> None:
    assert identity_differences(spec(), spec(change)) == []


def test_identity_holds_no_path_and_no_searched_value() -> None:
    assert not {"dataset.root", "see.n_aug", "study"} & identity(spec()).keys()
