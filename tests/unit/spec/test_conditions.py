from __future__ import annotations

import pytest

from see_tune.errors import SpecError
from see_tune.losses import LOSSES
from see_tune.spec.load import Loaded, parse_study
from see_tune.spec.space import Parameter

HEAD = "study: s\ndataset: {name: cars196}\n"


def load(search: str, rest: str = "") -> Loaded:
    return parse_study(f"{HEAD}{rest}search:\n  " + "\n  ".join(search.splitlines()) + "\n", "f.yaml")


def parameters(loaded: Loaded) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in loaded.space.parameters}


@pytest.mark.parametrize("name", sorted(name for name, loss in LOSSES.items() if loss.has_proxies and name != "proxy_anchor"))
def test_a_losss_block_is_active_only_with_that_loss(name: str) -> None:
    key, value = next((key, value) for key, value in LOSSES[name].defaults.items() if not isinstance(value, bool))
    form = "int" if isinstance(value, int) else "float"
    loaded = load(f"loss.{name}.{key}: {{{form}: [{value}, {value * 2}]}}\nloss.name: {{choice: [proxy_anchor, {name}]}}")
    assert [parameter.name for parameter in loaded.space.parameters] == ["loss.name", f"loss.{name}.{key}"]
    assert parameters(loaded)[f"loss.{name}.{key}"].when == (("loss.name", (name,)),)


def test_the_fixed_losss_block_is_always_active() -> None:
    assert parameters(load("loss.proxy_anchor.alpha: {float: [16, 64]}"))["loss.proxy_anchor.alpha"].when == ()


def test_another_losss_block_is_left_out_with_a_warning() -> None:
    loaded = load("loss.arcface.margin: {float: [10, 30]}\nsee.n_aug: {int: [1, 8]}")
    assert list(parameters(loaded)) == ["see.n_aug"]
    assert loaded.warnings == (
        "f.yaml:4: search.loss.arcface.margin: can never be active, so it is left out: loss.name is proxy_anchor and not arcface",
    )


def test_see_is_varied_only_where_it_is_on() -> None:
    loaded = load("see.n_aug: {int: [1, 8]}\nsee.enabled: {choice: [true, false]}")
    assert list(parameters(loaded)) == ["see.enabled", "see.n_aug"]
    assert parameters(loaded)["see.n_aug"].when == (("see.enabled", (True,)),)


def test_what_varies_see_is_left_out_where_see_is_off() -> None:
    loaded = load("see.n_aug: {int: [1, 8]}\nloss.proxy_anchor.alpha: {float: [16, 64]}", "see: {enabled: false}\n")
    assert list(parameters(loaded)) == ["loss.proxy_anchor.alpha"]
    assert loaded.warnings == (
        "f.yaml:5: search.see.n_aug: can never be active, so it is left out: see.enabled is False and not True",
    )


def test_a_ramp_is_varied_only_with_a_shape_that_ramps() -> None:
    loaded = load("see.pace.ramp: {float: [0.1, 1]}\nsee.pace.shape: {choice: [cosine, step, constant]}")
    assert parameters(loaded)["see.pace.ramp"].when == (("see.pace.shape", ("cosine", "step")),)


def test_a_condition_that_always_holds_is_none() -> None:
    loaded = load("see.pace.ramp: {float: [0.1, 1]}\nsee.pace.shape: {choice: [cosine, linear]}")
    assert parameters(loaded)["see.pace.ramp"].when == ()


def test_a_ramp_under_a_constant_pace_is_left_out() -> None:
    loaded = load("see.pace.ramp: {float: [0.1, 1]}\nsee.n_aug: {int: [1, 8]}", "see: {pace: {shape: constant}}\n")
    assert list(parameters(loaded)) == ["see.n_aug"]


def test_a_file_may_state_conditions_of_its_own() -> None:
    loaded = load(
        "see.n_aug: {int: [1, 8]}\nsee.lambda: {float: [0.1, 1], when: {see.n_aug: [4, 8, 16], dataset.name: [cars196]}}"
    )
    assert parameters(loaded)["see.lambda"].when == (("see.n_aug", (4, 8)),)
    assert loaded.space.fixed == {"dataset.name": "cars196"}


def test_a_condition_narrows_the_one_that_is_there_anyway() -> None:
    entry = "loss.arcface.margin: {float: [10, 30], when: {loss.name: [cosface]}}"
    loaded = load(f"loss.name: {{choice: [proxy_anchor, arcface, cosface]}}\n{entry}")
    assert list(parameters(loaded)) == ["loss.name"]


def test_a_condition_on_a_continuous_key_never_holds() -> None:
    loaded = load("see.lambda: {float: [0.1, 1]}\nsee.n_aug: {int: [1, 8], when: {see.lambda: [0.5]}}")
    assert "see.lambda is continuous" in loaded.warnings[0]


def test_what_depends_on_something_never_active_is_never_active() -> None:
    loaded = load(
        "see.gradient: {choice: [proxies, all]}\n"
        "see.n_aug: {int: [1, 8], when: {loss.name: [arcface]}}\n"
        "see.lambda: {float: [0.1, 1], when: {see.n_aug: [4]}}"
    )
    assert list(parameters(loaded)) == ["see.gradient"]
    assert "see.n_aug can never be active either" in loaded.warnings[1]


def test_a_search_of_nothing_active_is_refused() -> None:
    with pytest.raises(SpecError, match="nothing is left to search"):
        load("loss.arcface.margin: {float: [10, 30]}")


def test_a_condition_on_what_is_itself_conditional_stays() -> None:
    loaded = load(
        "see.enabled: {choice: [true, false]}\n"
        "see.gradient: {choice: [proxies, all]}\n"
        "train.batch_size: {choice: [90, 180], when: {see.gradient: [proxies, all]}}"
    )
    assert parameters(loaded)["train.batch_size"].when == (("see.gradient", ("proxies", "all")),)
