from __future__ import annotations

from see_tune.spec.space import Choice, FloatRange, IntRange, Parameter, Space, point_key


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


def test_values_of_a_stepped_range_include_its_upper_end() -> None:
    assert FloatRange(0.1, 0.5, step=0.2).values == (0.1, 0.30000000000000004, 0.5)
    assert FloatRange(0.1, 0.5).values is None
    assert list(IntRange(2, 8, step=3).values) == [2, 5, 8]


def test_points_are_the_product_and_the_last_parameter_varies_fastest() -> None:
    space = Space((Parameter("a", IntRange(1, 2)), Parameter("b", Choice((True, False)))), {})
    assert space.size == 4
    assert [tuple(point.values()) for point in space.points()] == [(1, True), (1, False), (2, True), (2, False)]


def test_a_continuous_range_has_no_number_of_points() -> None:
    assert Space((Parameter("a", IntRange(1, 2)), Parameter("b", FloatRange(0, 1))), {}).size is None


def test_one_point_written_in_two_roundings_is_one_point() -> None:
    assert point_key({"a": 0.3}) == point_key({"a": 0.1 + 2 * 0.1})
    assert point_key({"a": 1}) != point_key({"a": True})
