"""A trial of one study as a point of another: what a changed search space keeps, and what a warm start may use.

A finished trial is kept where some point of the new space trains exactly the same: the same values of every key, searched or
fixed. So a range may be widened or narrowed, a choice added or removed, a key begin to be searched (its trials have the value
that was fixed then) or cease to be (those with the value that is fixed now are kept), all by this one rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from see_tune.errors import SpecError
from see_tune.spec.frozen import changes_no_number
from see_tune.spec.keys import PER_TRIAL, flat
from see_tune.spec.models import StudySpec, TrialSpec
from see_tune.spec.points import Point
from see_tune.spec.ranges import in_type
from see_tune.spec.space import Space, Value
from see_tune.spec.values import apply, read, trial_values


def trained(spec: StudySpec, values: Mapping[str, Value]) -> TrialSpec:
    """What a study's trial with these searched values trains."""
    return apply(trial_values(spec), values)


def fitted(trial: TrialSpec, spec: StudySpec, space: Space) -> Point | None:
    """The point of the study's space that trains exactly what `trial` does; None where there is none."""
    known: dict[str, Value] = dict(space.fixed)
    point: Point = {}
    for parameter in space.parameters:
        if parameter.active(known):
            own = read(trial, parameter.name)
            if own is None or not parameter.domain.holds(in_type(parameter.domain, own)):
                return None
            known[parameter.name] = point[parameter.name] = in_type(parameter.domain, own)
    try:
        return point if _deciding(trained(spec, point)) == _deciding(trial) else None
    except SpecError:  # values that do not fit each other under the new fixed ones
        return None


def _deciding(trial: TrialSpec) -> dict[str, Any]:
    """All that decides a trial's number, by dotted key. The split hangs on keys of the study, which are compared as such."""
    values = flat(trial.model_dump(mode="json", by_alias=True, exclude=set(PER_TRIAL)))
    return {name: value for name, value in values.items() if not changes_no_number(name)}
