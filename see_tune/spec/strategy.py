"""What the sampler and the pruner can make of a space: checked before a search starts, not in the middle of it."""

from __future__ import annotations

import itertools
import math

from see_tune.method.curriculum import first_epoch_reaching
from see_tune.spec.document import Findings
from see_tune.spec.models import PaceSpec, StudySpec
from see_tune.spec.ranges import domain_of
from see_tune.spec.space import FloatRange, Space, Value
from see_tune.spec.values import read, trial_values
from see_tune.wording import counted

_UNCONDITIONAL = ("grid", "cmaes", "gp")
_LEAST_PART = 5  # a fifth of the horizon


def check_sampler(spec: StudySpec, space: Space, findings: Findings) -> None:
    """Refuse spaces that the chosen sampler cannot walk."""
    name = spec.sampler.name
    conditional = [parameter.name for parameter in space.parameters if parameter.when]
    if name in _UNCONDITIONAL and conditional:
        message = f"{name} cannot vary what is active only sometimes: {', '.join(conditional)}; use tpe, random or qmc"
        findings.refuse(("sampler", "name"), message)
    if name == "grid":
        for parameter in space.parameters:
            if isinstance(parameter.domain, FloatRange) and parameter.domain.step is None:
                message = "a grid needs steps; add step: SIZE, or list values in {choice: [...]}"
                findings.refuse(("search", parameter.name), message)
        if space.size is not None and space.size > spec.budget.trials:
            message = (
                f"the grid has {counted(space.size, 'point')} and budget.trials is {spec.budget.trials}: only the first are "
                f"tried, the last key of `search` varying fastest; raise budget.trials, or take larger steps"
            )
            findings.warn(("sampler", "name"), message)


def check_pruner(spec: StudySpec, findings: Findings) -> None:
    """Refuse a pruner that would judge trials before there is something to judge."""
    stated = spec.pruner.grace_epochs
    if spec.pruner.name == "none" or stated == "auto" or spec.pruner.force:
        return
    least = least_grace_epochs(spec)
    if stated < least:
        message = (
            f"{stated} is too early: before epoch {least} some point of the space has not reached half its end_share, "
            f"or a fifth of the horizon is not over, and trials look alike; write at least {least}, auto, or force: true"
        )
        findings.refuse(("pruner", "grace_epochs"), message)


def least_grace_epochs(spec: StudySpec) -> int:
    """The first epoch (from 1) by which every point of the space has reached half its end_share, at least a fifth of all.

    The share at an epoch moves one way with each number of the pace, so that the corners of the space hold its slowest point.
    """
    epochs = spec.train.epochs
    least = math.ceil(epochs / _LEAST_PART)
    if not spec.see.enabled and "see.enabled" not in spec.search:
        return least
    names = ("shape", "start_share", "end_share", "ramp")
    corners = itertools.product(*(_extremes(spec, f"see.pace.{name}") for name in names))
    paces = (PaceSpec.model_validate(dict(zip(names, corner, strict=True))) for corner in corners)
    return max(least, *(_half_way(pace, epochs) for pace in paces))


def _half_way(pace: PaceSpec, epochs: int) -> int:
    return first_epoch_reaching(
        0.5, epochs, shape=pace.shape, start_share=pace.start_share, end_share=pace.end_share, ramp=pace.ramp
    )


def _extremes(spec: StudySpec, name: str) -> tuple[Value, ...]:
    """A fixed key's value; a searched one's options or both ends, and its own value where a `when` may make it inactive."""
    entry = spec.search.get(name)
    own = read(trial_values(spec), name)
    assert own is not None  # no number of the pace may be null
    if entry is None:
        return (own,)
    extremes = domain_of(entry).extremes
    return (*extremes, own) if entry.when else extremes
