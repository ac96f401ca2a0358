"""The search space as plain dataclasses: names, ranges, conditions. No Optuna here; the ledger translates.

A parameter is active where each of its conditions holds: the named key (searched, or fixed in the file) has one of the
listed values. Parameters stand in an order in which a condition's key comes before what depends on it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    @property
    def values(self) -> Sequence[Value]:
        """Every value, in order."""
        return range(self.low, self.high + 1, self.step)

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

    @property
    def values(self) -> Sequence[Value] | None:
        """Every value, in order; None without a step.

        >>> FloatRange(0.1, 0.4, step=0.1).values
        (0.1, 0.2, 0.30000000000000004, 0.4)
        """
        if self.step is None:
            return None
        steps = math.floor((self.high - self.low) / self.step + 1e-6)
        return tuple(min(self.low + self.step * count, self.high) for count in range(steps + 1))

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

    @property
    def values(self) -> Sequence[Value]:
        """Every value, in the file's order."""
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

    @property
    def size(self) -> int | None:
        """How many points there are at most (conditions leave fewer); None where a range is continuous."""
        sizes = [None if (values := parameter.domain.values) is None else len(values) for parameter in self.parameters]
        return math.prod(size for size in sizes if size is not None) if None not in sizes else None

    def points(self) -> Iterator[dict[str, Value]]:
        """Every point of a space without conditions and continuous ranges; the last parameter varies fastest."""
        names = [parameter.name for parameter in self.parameters]
        values = [parameter.domain.values or () for parameter in self.parameters]
        return (dict(zip(names, point, strict=True)) for point in itertools.product(*values))


def point_key(point: Mapping[str, Value]) -> tuple[tuple[str, str, str], ...]:
    """Equal for points that are the same up to the rounding of stepped floats.

    >>> point_key({"a": 0.3}) == point_key({"a": 0.1 + 2 * 0.1}), point_key({"a": True}) == point_key({"a": 1})
    (True, False)
    """
    return tuple(sorted((name, type(value).__name__, _rounded(value)) for name, value in point.items()))


def _rounded(value: Value) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
