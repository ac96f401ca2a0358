"""A YAML file -> StudySpec and Space, or a SpecError that says where, what is valid, and what was probably meant.

    search_spaces/cars.yaml:12: see.n_agu: unknown key; did you mean see.n_aug? valid: enabled, n_aug, lambda, gradient, pace

The first station of the road and the only reader of YAML. Three layers make a study: what the file and ``--set`` state,
beneath it the dataset's own defaults, beneath those the models' defaults. Every problem of a file is listed, a line each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from see_tune.data import DATASETS
from see_tune.spec import keys
from see_tune.spec.conditions import build_space
from see_tune.spec.document import Document, Findings, Flag, KeyPath, as_error, beneath, dotted, override, parse, read_text
from see_tune.spec.frozen import differences, dump_study, identity, identity_differences
from see_tune.spec.models import RuleError, StudySpec
from see_tune.spec.points import Point, start_points, trial_zero
from see_tune.spec.ranges import FORMS, check_names, read_domains
from see_tune.spec.space import Space
from see_tune.spec.strategy import check_pruner, check_sampler, least_grace_epochs
from see_tune.spec.values import apply, read, trial_values
from see_tune.spec.words import complaint, describe_key, shown

__all__ = [
    "Flag",
    "Loaded",
    "apply",
    "differences",
    "dump_study",
    "grace_epochs",
    "identity",
    "identity_differences",
    "load_study",
    "load_values",
    "parse_study",
    "read",
    "trial_values",
]


@dataclass(frozen=True)
class Loaded:
    """A study that may run.

    trial_zero: the searched and active values of trial 0; None where a default lies outside its searched range.
    points: what `start_with` asks for, dotted and in range, without the SEE-off baseline that runs anyway.
    warnings: one line each, with its place.
    """

    spec: StudySpec
    space: Space
    trial_zero: Point | None
    points: tuple[Point, ...]
    warnings: tuple[str, ...]
    source: Path


def load_study(path: Path, *, overrides: Sequence[str | Flag] = ()) -> Loaded:
    """Read one YAML file; `overrides` are ``--set`` assignments (``see.lambda=0.3``) and flags.

    Raises: SpecError with one line for each problem.
    """
    return parse_study(read_text(path), str(path), overrides)


def load_values(path: Path, *, overrides: Sequence[str | Flag] = ()) -> StudySpec:
    """`load_study` for one who trains the file's own values and searches nothing: whether its search can be is not asked.

    Raises: SpecError with one line for each problem.
    """
    return _validated(Findings(_overridden(read_text(path), str(path), overrides)))


def parse_study(text: str, source: str, overrides: Sequence[str | Flag] = ()) -> Loaded:
    """`load_study` for a text; `source` is what its places are called."""
    findings = Findings(_overridden(text, source, overrides))
    spec = _validated(findings)
    domains = read_domains(spec, findings)
    findings.settle()
    space = build_space(spec, domains, findings)
    findings.settle()
    zero = trial_zero(spec, space, findings)
    points = start_points(spec, space, findings)
    check_sampler(spec, space, findings)
    check_pruner(spec, findings)
    findings.settle()
    return Loaded(spec, space, zero, points, tuple(findings.warnings), Path(source))


def grace_epochs(loaded: Loaded) -> int:
    """The epochs that every trial may run unjudged, with ``auto`` resolved."""
    stated = loaded.spec.pruner.grace_epochs
    return least_grace_epochs(loaded.spec) if stated == "auto" else stated


def _overridden(text: str, source: str, overrides: Sequence[str | Flag]) -> Document:
    document = override(parse(text, source), overrides)
    return beneath(document, _dataset_defaults(document))


def _dataset_defaults(document: Document) -> dict[str, Any]:
    dataset = document.values.get("dataset")
    name = dataset.get("name") if isinstance(dataset, dict) else None
    entry = DATASETS.get(name) if isinstance(name, str) else None
    return dict(entry.defaults) if entry else {}


def _validated(findings: Findings) -> StudySpec:
    document = findings.document
    check_names(findings)
    for name in keys.PER_TRIAL:
        if name in document.values:
            findings.refuse((name,), _unknown((name,)))
    try:
        spec = StudySpec.model_validate(document.values, by_alias=True, by_name=False)
    except ValidationError as error:
        for detail in error.errors():
            _refuse(detail, findings)
        raise as_error(findings.problems) from None
    findings.settle()
    return spec


def _refuse(detail: ErrorDetails, findings: Findings) -> None:
    """Note one of pydantic's errors where the file has it, in our words."""
    path = _yaml_path(detail, findings.document)
    match detail["type"]:
        case "extra_forbidden":
            findings.refuse(path, _unknown(path))
        case "missing":
            findings.refuse(path, f"is missing; valid: {describe_key(dotted(path))}")
        case "too_short" if detail["input"]:
            return  # pydantic counts the items that are right; those that are not have a complaint of their own
        case "too_short":
            findings.refuse(path, f"is empty; valid: at least one, {describe_key(dotted(path))}")
        case "union_tag_not_found" | "union_tag_invalid":
            findings.refuse(path, f"found {shown(detail['input'])}; valid: {FORMS}")
        case _:
            cause = detail.get("ctx", {}).get("error")
            path = (*path, *cause.key.split(".")) if isinstance(cause, RuleError) else path
            findings.refuse(path, complaint(detail, dotted(path)))


def _yaml_path(detail: ErrorDetails, document: Document) -> KeyPath:
    """pydantic's location without the names of union members that it holds."""
    path: list[str | int] = []
    current: Any = document.values
    for part in _without_entry_form(detail["loc"]):
        inside = part in current if isinstance(current, dict) else isinstance(current, list) and part in range(len(current))
        if inside:
            path.append(part)
            current = current[part]
    return (*path, detail["loc"][-1]) if detail["type"] == "missing" else tuple(path)


_FORM_AT = 2  # ("search", "see.n_aug", "int", "int", 0): the third names the union's member


def _without_entry_form(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    if location[:1] == ("search",) and len(location) > _FORM_AT:
        return (*location[:_FORM_AT], *location[_FORM_AT + 1 :])
    return location


def _unknown(path: KeyPath) -> str:
    *block, last = path
    prefix, valid = f"{dotted(tuple(block))}." if block else "", _siblings(tuple(block))
    if last in valid:
        return "does not go with what stands beside it; valid: one of int, float and choice, log or step with the first two"
    near = keys.nearest(str(last), valid, prefix) or keys.nearest(str(last), keys.schemas()) or "."
    return f"unknown key{near} valid: {', '.join(valid)}"


def _siblings(block: KeyPath) -> list[str]:
    if block[:1] == ("search",):
        return ["int", "float", "choice", "log", "step", "when"]
    return keys.children(dotted(block))
