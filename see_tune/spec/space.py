"""The search space as plain dataclasses: names, ranges, conditions. No Optuna here; the ledger translates.

A parameter is active where each of its conditions holds: the named key (searched, or fixed in the file) has one of the
listed values. Parameters stand in an order in which a condition's key comes before what depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Value = bool | int | float | str


def same(left: object, right: object) -> bool:
    """Equal and of one type: in Python ``True == 1``, in a search space not."""
    return type(left) is type(right) and left == right


def among(value: object, options: Iterable[Value]) -> bool:
    """Whether `value` is one of `options`, type included."""
    return any(same(value, option) for option in options)


def is_multiple(length: float, step: float) -> bool:
    """Whether `length` is a whole number of steps, up to rounding.

    >>> is_multiple(0.3, 0.1), is_multiple(0.35, 0.1)
    (True, False)
    """
    return math.isclose(length / step, round(length / step), abs_tol=1e-6)


@dataclass(frozen=True)
class IntRange:
    low: int
    high: int
    log: bool = False
    step: int = 1

    def holds(self, value: Value) -> bool:
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    @property
    def extremes(self) -> tuple[int, int]:
        return (self.low, self.high)

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" + (f" in steps of {self.step}" if self.step > 1 else "")


@dataclass(frozen=True)
class FloatRange:
    low: float
    high: float
    log: bool = False
    step: float | None = None

    def holds(self, value: Value) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        return self.step is None or is_multiple(value - self.low, self.step)

    @property
    def extremes(self) -> tuple[float, float]:
        return (self.low, self.high)

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}" + (f" in steps of {self.step:g}" if self.step else "")


@dataclass(frozen=True)
class Choice:
    options: tuple[Value, ...]

    def holds(self, value: Value) -> bool:
        return among(value, self.options)

    @property
    def extremes(self) -> tuple[Value, ...]:
        return self.options

    def __str__(self) -> str:
        return f"one of {', '.join(str(option) for option in self.options)}"


Domain = IntRange | FloatRange | Choice


@dataclass(frozen=True)
class Parameter:
    """One searched key.

    name: dotted, as in the YAML (``see.lambda``).
    when: (key, values) pairs that must all hold for it to be active.
    """

    name: str
    domain: Domain
    when: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    def active(self, values: Mapping[str, Value]) -> bool:
        return all(key in values and among(values[key], allowed) for key, allowed in self.when)


@dataclass(frozen=True)
class Space:
    """The parameters in an order in which conditions can be decided, and the fixed values that conditions name."""

    parameters: tuple[Parameter, ...]
    fixed: Mapping[str, Value]
