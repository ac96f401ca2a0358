"""A study as it was frozen in its folder, and what may differ when the same study is started again."""

from __future__ import annotations

from typing import Any

import yaml

from see_tune.data import DATASETS
from see_tune.spec import keys
from see_tune.spec.document import scalar
from see_tune.spec.models import DatasetSpec, StudySpec, TrialSpec
from see_tune.spec.ranges import domain_of
from see_tune.spec.space import same
from see_tune.spec.values import apply, read, trial_values

_MAY_CHANGE = (
    "study",
    "dataset.root",
    "dataset.title",
    "data.cache",
    "data.cache_limit_gb",
    "data.workers",
    "model.channels_last",
    "model.compile",
    "train.micro_batch",
    "evaluate.batch_size",
    "search",
    "start_with",
    "warm_start",
    "sampler",
    "budget",
    "validation.rerank_top",
    "validation.rerank_folds",
    "final",
    "resources",
    "failure",
    "storage",
    "tracking",
)


class _Dumper(yaml.SafeDumper):
    """Writes YAML that `document.scalar` reads back: text that looks like a YAML 1.2 number or boolean is quoted."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = isinstance(scalar(text), str) and text.isprintable()  # an odd line break (U+0085) comes back as another one
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _text)


def dump_study(spec: StudySpec) -> str:
    """Complete YAML, every default written out, that `parse_study` reads back as an equal spec.

    One kind of line is left out: a searched key's default that lies outside its range, which may not be *stated* so.
    """
    values = _plain(spec)
    for name in _defaults_outside_their_range(spec):
        *blocks, last = name.split(".")
        block = values
        for part in blocks:
            block = block[part]
        del block[last]
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def _plain(spec: StudySpec) -> dict[str, Any]:
    values = spec.model_dump(mode="json", by_alias=True, exclude=set(keys.PER_TRIAL))
    search = {name: entry.model_dump(mode="json", by_alias=True, exclude_defaults=True) for name, entry in spec.search.items()}
    return {"study": values.pop("study"), **values, "search": search}


def _defaults_outside_their_range(spec: StudySpec) -> list[str]:
    trial, defaults = trial_values(spec), _defaults(spec.dataset)
    found = []
    for name, entry in spec.search.items():
        own = read(trial, name)
        if own is not None and not domain_of(entry).holds(own) and same(own, read(defaults, name)):
            found.append(name)
    return found


def _defaults(dataset: DatasetSpec) -> TrialSpec:
    return apply(TrialSpec(dataset=dataset), DATASETS[dataset.name].defaults)


def differences(old: StudySpec, new: StudySpec) -> list[tuple[str, Any, Any]]:
    """(dotted key, old value, new value) for every key that differs; None stands for absent, too."""
    return _compare(_flat(old), _flat(new))


def identity(spec: StudySpec) -> dict[str, Any]:
    """What must stay the same for a study to go on: all that decides what a trial's number means, by dotted key.

    Not in it: the dataset's path, what changes memory or speed alone, the search and the budget, and the own values of
    searched keys.
    """
    return {name: value for name, value in _flat(spec).items() if not changes_no_number(name) and name not in spec.search}


def changes_no_number(name: str) -> bool:
    """Whether the dotted key may differ between trials that are compared."""
    return any(f"{name}.".startswith(f"{key}.") for key in _MAY_CHANGE)


def identity_differences(old: StudySpec, new: StudySpec) -> list[tuple[str, Any, Any]]:
    """(dotted key, old value, new value) for what would make `new` another study.

    A key that only one of the two searches is left to the trials: those that fit the new space still count.
    """
    searched = {*old.search, *new.search}
    return [change for change in _compare(identity(old), identity(new)) if change[0] not in searched]


def _flat(spec: StudySpec) -> dict[str, Any]:
    values = _plain(spec)
    search = {f"search.{name}": entry for name, entry in values.pop("search").items()}
    return keys.flat(values) | search


def _compare(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    names = [*old, *(name for name in new if name not in old)]
    changes = ((name, old.get(name), new.get(name)) for name in names)
    return [(name, before, after) for name, before, after in changes if not same(before, after)]
