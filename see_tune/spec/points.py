"""What the search tries first: trial 0, the file's own values, and then the points of `start_with`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from see_tune.spec import keys
from see_tune.spec.document import Findings, KeyPath
from see_tune.spec.models import StudySpec, TrialSpec
from see_tune.spec.ranges import as_field, in_type
from see_tune.spec.space import Parameter, Space, Value, among
from see_tune.spec.values import read, trial_values

Point = dict[str, Value]


def _is_baseline(point: Mapping[str, Any]) -> bool:
    """The one point outside the search that `start_with` may name: SEE off, which the study runs anyway."""
    return list(point) == ["see.enabled"] and point["see.enabled"] is False


def trial_zero(spec: StudySpec, space: Space, findings: Findings) -> Point | None:
    """The file's own values of what is searched and active; None where the search could not suggest them.

    A stated value outside its range is a problem, a default there only a warning.
    """
    trial = trial_values(spec)
    values: Point = {}
    outside = False
    for parameter in space.parameters:
        own = read(trial, parameter.name)
        if not parameter.active(values):
            continue
        if own is not None and parameter.domain.holds(in_type(parameter.domain, own)):
            values[parameter.name] = in_type(parameter.domain, own)
        else:
            outside = True
            _report_outside(parameter, own, findings)
    return None if outside else values


def _report_outside(parameter: Parameter, own: Value | None, findings: Findings) -> None:
    name, path = parameter.name, tuple(parameter.name.split("."))
    lies = f"{own} lies outside what `search` varies, {parameter.domain}"
    if findings.document.states(path):
        message = f"{lies}; trial 0 is the file's own values, so change this one or widen the range"
        findings.refuse(path, message)
    else:
        message = f"the default {lies}, so trial 0 is left to the sampler; state {name} to choose it"
        findings.warn(("search", name), message, key=name)


def start_points(spec: StudySpec, space: Space, findings: Findings) -> tuple[Point, ...]:
    """The points of `start_with`, dotted; what a point leaves out is the sampler's."""
    found: list[Point] = []
    for index, raw in enumerate(spec.start_with):
        flat, reader = keys.flat(raw), _Reader(index, spec, space, findings)
        reader.refuse_repeated(raw)
        if "see.enabled" in spec.search or not _is_baseline(flat):
            point = reader.read(flat)
            found += [point] if point else []
    return tuple(found)


class _Reader:
    """Reads one item of `start_with`."""

    def __init__(self, index: int, spec: StudySpec, space: Space, findings: Findings) -> None:
        self.index = index
        self.searched = spec.search
        self.trial: TrialSpec = trial_values(spec)
        self.parameters = {parameter.name: parameter for parameter in space.parameters}
        self.findings = findings

    def read(self, raw: Mapping[str, Any]) -> Point:
        if not raw:
            self._refuse("", "names no value; write {see.n_aug: 8}, or drop it")
        for name in raw:
            if name not in self.parameters:
                self._refuse(name, self._why_unknown(name))
        point: Point = {}
        for name, parameter in self.parameters.items():
            if name in raw:
                value = self._value(parameter, raw[name])
                if value is not None and self._check_active(parameter, point):
                    point[name] = value
        return point

    def refuse_repeated(self, raw: Mapping[str, Any]) -> None:
        for name, times in Counter(name for name, _ in keys.leaves(raw)).items():
            if times > 1:
                self._refuse(name, "is stated twice, nested and dotted; drop one of the two")

    def _value(self, parameter: Parameter, raw: Any) -> Value | None:
        value = as_field(self.trial, parameter.name, raw)
        if value is None or not parameter.domain.holds(in_type(parameter.domain, value)):
            varied = f"{raw!r} lies outside what `search` varies, {parameter.domain}"
            self._refuse(parameter.name, f"{varied}; choose a value in there, or widen the range")
            return None
        return in_type(parameter.domain, value)

    def _check_active(self, parameter: Parameter, point: Point) -> bool:
        for key, allowed in parameter.when:
            if key in point and not among(point[key], allowed):
                self._refuse(parameter.name, f"is not active where {key} is {point[key]}; drop one of the two")
                return False
        return True

    def _why_unknown(self, name: str) -> str:
        if name in self.searched:
            return "can never be active in this study; drop it"
        searched = f"searched are {', '.join(self.parameters)}"
        if name in keys.trial_keys():
            return f"is not searched; {searched}"
        return f"unknown key{keys.nearest(name, self.parameters) or '.'} {searched}"

    def _refuse(self, name: str, message: str) -> None:
        nested: KeyPath = ("start_with", self.index, *name.split("."))
        path = nested if self.findings.document.states(nested) else ("start_with", self.index, name)
        key = f"start_with[{self.index}].{name}" if name else f"start_with[{self.index}]"
        self.findings.refuse(path, message, key=key)
