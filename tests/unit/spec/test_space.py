from __future__ import annotations

from see_tune.spec.space import Choice, FloatRange, IntRange, Parameter


def test_a_range_holds_its_ends_and_its_steps() -> None:
    steps = IntRange(2, 8, step=3)
    assert [value for value in range(12) if steps.holds(value)] == [2, 5, 8]
    assert FloatRange(0.1, 0.5, step=0.1).holds(0.3)
    assert not FloatRange(0.1, 0.5, step=0.1).holds(0.35)


def test_a_boolean_is_no_number() -> None:
    assert not IntRange(0, 1).holds(True)
    assert not FloatRange(0, 1).holds(True)
    assert not Choice((0, 1)).holds(True)


def test_a_parameter_is_active_where_all_its_conditions_hold() -> None:
    parameter = Parameter("c", IntRange(1, 2), when=(("a", (True,)), ("b", ("x", "y"))))
    assert parameter.active({"a": True, "b": "y"})
    assert not parameter.active({"a": True, "b": "z"})
    assert not parameter.active({"a": 1, "b": "x"})
    assert not parameter.active({"a": True})
