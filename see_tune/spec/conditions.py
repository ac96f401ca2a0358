"""When each searched key is active: domains -> Space.

Conditions come from three sources: the file's ``when``; blocks and keys that matter only beside a certain choice
(`_MATTERS_WITH`: ``loss.arcface.*`` with that loss, ``see.pace.ramp`` with a shape that ramps); and ``see.enabled``. A
condition on a fixed key is decided here, once: it always holds, or its parameter is left out with a warning. An inactive
key does not count as having its value, so what depends on it is inactive too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from see_tune.losses import LOSSES
from see_tune.spec import keys
from see_tune.spec.document import Findings
from see_tune.spec.models import StudySpec, TrialSpec
from see_tune.spec.ranges import as_field, in_type
from see_tune.spec.space import Choice, Domain, FloatRange, Parameter, Space, Value, among
from see_tune.spec.values import read, trial_values
from see_tune.spec.words import describe

Allowed = tuple[Value, ...]
Conditions = dict[str, Allowed]

_MATTERS_WITH: Mapping[str, tuple[str, Allowed]] = {
    "see.pace.ramp": ("see.pace.shape", ("cosine", "linear", "step")),
    "see.pace.start_share": ("see.pace.shape", ("cosine", "linear", "step")),
    "train.optimizer.momentum": ("train.optimizer.name", ("sgd",)),
    "train.optimizer.eps": ("train.optimizer.name", ("adamw", "adam")),
    "train.schedule.step_epochs": ("train.schedule.name", ("step",)),
    "train.schedule.gamma": ("train.schedule.name", ("step",)),
    **{f"loss.{name}.{key}": ("loss.name", (name,)) for name, loss in LOSSES.items() for key in loss.defaults},
}


def build_space(spec: StudySpec, domains: Mapping[str, Domain], findings: Findings) -> Space:
    """The parameters that can ever be active, each after what decides it."""
    trial = trial_values(spec)
    conditions = {name: _conditions(spec, trial, name, findings) for name in domains}
    order = _ordered(conditions, findings)
    if findings.problems:
        return Space((), {})
    builder = _Builder(trial, domains)
    reasons = {name: never for name in order if (never := builder.add(name, conditions[name]))}
    for name, never in reasons.items():
        findings.warn(("search", name), f"can never be active, so it is left out: {never}")
    if not builder.alive:
        findings.refuse(("search",), _nothing_left(reasons))
    return Space(tuple(builder.alive.values()), builder.fixed)


def _nothing_left(reasons: Mapping[str, str]) -> str:
    told = "; ".join(dict.fromkeys(reasons.values()))
    return (
        f"nothing is left to search, as none of {', '.join(reasons)} can ever be active: {told}; change that, or train the "
        "file's own values alone: see-tune train FILE"
    )


def _conditions(spec: StudySpec, trial: TrialSpec, name: str, findings: Findings) -> Conditions:
    found: Conditions = {}
    if name.startswith("see.") and name != "see.enabled" and ("see.enabled" in spec.search or not spec.see.enabled):
        found["see.enabled"] = (True,)
    if name in _MATTERS_WITH:
        key, allowed = _MATTERS_WITH[name]
        found[key] = allowed
    for key, raw in spec.search[name].when.items():
        values = _when_values(trial, name, key, raw, findings)
        found[key] = tuple(value for value in values if key not in found or among(value, found[key]))
    return found


def _when_values(trial: TrialSpec, name: str, key: str, raw: list[Value], findings: Findings) -> Allowed:
    path = ("search", name, "when", key)
    if key not in keys.trial_keys():
        findings.refuse(path[:3], f"unknown key {key}{keys.nearest(key, keys.searchable())}")
        return ()
    if not raw:
        findings.refuse(path[:3], f"lists no value of {key}; write {key}: [VALUE, ...]")
    values = [as_field(trial, key, item) for item in raw]
    for item, value in zip(raw, values, strict=True):
        if value is None:
            message = f"{key} cannot be {item!r}; valid: {describe(key)}"
            findings.refuse(path[:3], message)
    return tuple(value for value in values if value is not None)


def _ordered(conditions: Mapping[str, Conditions], findings: Findings) -> list[str]:
    """The searched names, each after what decides it; a problem for each circle."""
    done: dict[str, None] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            circle = " -> ".join((*trail[trail.index(name) :], name))
            message = f"conditions run in a circle: {circle}; drop one of them"
            findings.refuse(("search", trail[-1], "when"), message)
            return
        for key in conditions[name]:
            if key in conditions and name not in done:
                visit(key, (*trail, name))
        done[name] = None

    for name in conditions:
        visit(name, ())
    return list(done)


@dataclass
class _Builder:
    """Adds parameters in order, deciding each condition by what stands before it."""

    trial: TrialSpec
    domains: Mapping[str, Domain]
    alive: dict[str, Parameter] = field(default_factory=dict)
    fixed: dict[str, Value] = field(default_factory=dict)

    def add(self, name: str, conditions: Conditions) -> str | None:
        """Add a parameter, or say why it can never be active."""
        open_conditions: list[tuple[str, Allowed]] = []
        for key, allowed in conditions.items():
            never = self._why_never(key, allowed)
            if never:
                return never
            if key in self.alive and not self._always(key, allowed):
                open_conditions.append((key, self._possible(key, allowed)))
        self.alive[name] = Parameter(name, self.domains[name], tuple(open_conditions))
        return None

    def _why_never(self, key: str, allowed: Allowed) -> str | None:
        wanted = " or ".join(str(value) for value in allowed) or "what else is asked of it"
        if key not in self.domains:
            value = read(self.trial, key)
            if value is None or not among(value, allowed):
                return f"{key} is {value} and not {wanted}"
            self.fixed[key] = value
            return None
        if key not in self.alive:
            return f"{key} can never be active either"
        domain = self.alive[key].domain
        if isinstance(domain, FloatRange) and domain.step is None:
            return f"{key} is continuous and practically never {wanted}"
        return None if self._possible(key, allowed) else f"{key} is {domain} and never {wanted}"

    def _possible(self, key: str, allowed: Allowed) -> Allowed:
        domain = self.domains[key]
        return tuple(value for value in (in_type(domain, item) for item in allowed) if domain.holds(value))

    def _always(self, key: str, allowed: Allowed) -> bool:
        parameter = self.alive[key]
        domain = parameter.domain
        return isinstance(domain, Choice) and not parameter.when and all(among(option, allowed) for option in domain.options)
