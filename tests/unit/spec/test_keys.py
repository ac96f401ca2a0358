from __future__ import annotations

from see_tune.losses import LOSSES
from see_tune.spec import keys


def test_every_parameter_of_every_loss_is_searchable() -> None:
    assert {f"loss.{name}.{key}" for name, loss in LOSSES.items() for key in loss.defaults} <= set(keys.searchable())


def test_every_number_boolean_and_choice_is_searchable_or_says_why_not() -> None:
    for name, schema in keys.schemas().items():
        reason = keys.why_fixed(name)
        assert (reason is None) == (name in keys.searchable()), name
        assert reason is None or schema


def test_every_key_has_a_description_for_editors() -> None:
    assert [name for name, schema in keys.schemas().items() if not schema.get("description")] == []


def test_the_nearest_name_is_found_by_letters_or_by_its_last_part() -> None:
    assert "see.n_aug" in keys.nearest("see.n_agu", keys.searchable())
    assert "see.n_aug" in keys.nearest("n_aug", keys.searchable())
    assert keys.nearest("zzzzzz", keys.searchable()) == ""


def test_blocks_are_flattened_to_dotted_names() -> None:
    assert keys.flat({"see": {"pace.ramp": 1}, "seed": 0}) == {"see.pace.ramp": 1, "seed": 0}
