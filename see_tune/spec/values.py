"""A trial's values by dotted YAML name: reading one, setting some, and what trial 0 is.

Every change goes through the models' validation, so that no trial exists whose values do not fit each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from see_tune.errors import SpecError
from see_tune.spec import keys
from see_tune.spec.models import MemberSpec, SplitSpec, StudySpec, TrialSpec
from see_tune.spec.space import Value
from see_tune.spec.words import complaint


def trial_values(spec: StudySpec) -> TrialSpec:
    """Trial 0: the study's own values, on the split that its search trials see."""
    values = {name: getattr(spec, name) for name in TrialSpec.model_fields if name not in keys.PER_TRIAL}
    splits = _splits(spec)
    seeds = [spec.seed + number for number in range(spec.repeat)]
    members = tuple(MemberSpec(split=split, seed=seed) for seed in seeds for split in splits)
    return TrialSpec(**values, split=splits[0], members=members if len(members) > 1 else ())


def _splits(spec: StudySpec) -> list[SplitSpec]:
    """What a search trial is measured on: one split, or all folds."""
    validation = spec.validation
    if spec.protocol == "paper":
        return [SplitSpec(kind="paper", seed=spec.seed)]
    if validation.fraction is not None:
        return [SplitSpec(kind="fraction", seed=spec.seed, fraction=validation.fraction)]
    folds = validation.folds or 0
    return [SplitSpec(kind="fold", seed=spec.seed, folds=folds, fold=fold) for fold in range(folds)]


def read(trial: TrialSpec, name: str) -> Value | None:
    """The trial's value of a dotted key: ``read(trial, "see.lambda")``. None where the key is null.

    Raises: SpecError for a name that is no key of a trial.
    """
    if name not in keys.trial_keys():
        raise SpecError(f"{name}: unknown key{keys.nearest(name, keys.trial_keys())}")
    value: Any = trial
    for part in name.split("."):
        value = getattr(value, _attribute(value, part))
    return value  # type: ignore[no-any-return]


def _attribute(model: BaseModel, alias: str) -> str:
    fields = type(model).model_fields
    return alias if alias in fields else next(name for name, field in fields.items() if field.alias == alias)


def apply(trial: TrialSpec, values: Mapping[str, Value]) -> TrialSpec:
    """The trial with these dotted keys set, validated as a whole.

    Raises: SpecError for a name that is no key of a trial, or a value that the key or the combination does not take.
    """
    unknown = [name for name in values if name not in keys.trial_keys()]
    if unknown:
        raise SpecError("\n".join(f"{name}: unknown key{keys.nearest(name, keys.trial_keys())}" for name in unknown))
    changed = trial.model_dump(by_alias=True)
    for name, value in values.items():
        *blocks, last = name.split(".")
        block = changed
        for part in blocks:
            block = block[part]
        block[last] = value
    try:
        return TrialSpec.model_validate(changed, by_alias=True, by_name=False)
    except ValidationError as error:
        raise SpecError("; ".join(_refusal(detail) for detail in error.errors())) from None


def _refusal(detail: ErrorDetails) -> str:
    name = next((known for known in _prefixes(detail["loc"]) if known in keys.schemas()), "")
    return f"{name}: {complaint(detail, name)}" if detail["type"] != "value_error" else complaint(detail, name)


def _prefixes(location: tuple[str | int, ...]) -> list[str]:
    return [".".join(map(str, location[:length])) for length in range(len(location), 0, -1)]
