from __future__ import annotations

import pytest

from see_tune.errors import SpecError
from see_tune.spec.load import parse_study
from see_tune.spec.space import Choice, Domain, FloatRange, IntRange

HEAD = "study: s\ndataset: {name: cars196}\n"


def domain(name: str, entry: str, rest: str = "") -> Domain:
    space = parse_study(f"{HEAD}{rest}search:\n  {name}: {entry}\n", "f.yaml").space
    return {parameter.name: parameter.domain for parameter in space.parameters}[name]


def test_the_three_forms_become_their_domains() -> None:
    assert domain("see.n_aug", "{int: [1, 64], log: true}") == IntRange(1, 64, log=True)
    assert domain("see.lambda", "{float: [0, 1], step: 0.25}", "see: {lambda: 0.25}\n") == FloatRange(0.0, 1.0, step=0.25)
    assert domain("see.gradient", "{choice: [proxies, all]}") == Choice(("proxies", "all"))


def test_whole_numbers_among_the_choices_of_a_float_field_become_floats() -> None:
    options = domain("see.lambda", "{choice: [1, 0.2]}")
    assert options == Choice((1.0, 0.2))
    assert isinstance(options, Choice)
    assert all(isinstance(option, float) for option in options.options)


def test_a_float_field_takes_a_range_of_whole_numbers() -> None:
    assert domain("loss.proxy_anchor.alpha", "{int: [16, 64]}") == IntRange(16, 64)


def test_a_backbone_may_be_chosen_by_name() -> None:
    entry = "{choice: [resnet50, deit_small_distilled_patch16_224]}"
    assert isinstance(domain("model.backbone", entry), Choice)


def test_n_aug_must_fit_the_smallest_searched_dimension() -> None:
    rest = "see: {n_aug: 4}\n"
    fits = "{int: [1, 15]}\n  model.embedding_dim: {choice: [16, 128]}"
    too_large = fits.replace("15", "16")
    assert domain("see.n_aug", fits, rest) == IntRange(1, 15)
    with pytest.raises(SpecError, match=r"search.see.n_aug: may not reach 16: .* embedding_dim - 1 = 15"):
        domain("see.n_aug", too_large, rest)


def test_n_aug_must_fit_only_the_dimensions_it_is_searched_with() -> None:
    entry = "{int: [1, 64], when: {model.embedding_dim: [128]}}\n  model.embedding_dim: {choice: [16, 128]}"
    assert domain("see.n_aug", entry) == IntRange(1, 64)


def test_a_searched_dimension_must_leave_room_for_a_fixed_n_aug() -> None:
    with pytest.raises(SpecError, match=r"search.model.embedding_dim: may not be 8: see.n_aug 8 does not fit"):
        domain("model.embedding_dim", "{choice: [8, 128]}")


def test_a_loss_without_proxies_is_searched_where_see_goes_off_with_it() -> None:
    see = "see.enabled: {choice: [true, false]"
    text = f"{HEAD}see: {{enabled: false}}\nsearch:\n  loss.name: {{choice: [proxy_anchor, multi_similarity]}}\n  {see}"
    parse_study(text + ", when: {loss.name: [proxy_anchor]}}\n", "f.yaml")
    with pytest.raises(SpecError, match=r"search.loss.name: may not be multi_similarity"):
        parse_study(text + "}\n", "f.yaml")


def test_an_n_aug_that_is_never_used_does_not_limit_the_dimension() -> None:
    entry = "{choice: [8, 128]}\n  see.n_aug: {int: [1, 7]}"
    assert domain("model.embedding_dim", entry) == Choice((8, 128))
