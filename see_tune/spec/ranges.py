"""The entries of `search` as domains: is the key searchable, does every value of the range fit its field.

A range is checked at both of its ends, and a choice at each option, by building the trial that would come of it: the
bounds of a field and the rules between fields (n_aug at most embedding_dim - 1) stand in ``spec/models.py`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from see_tune.errors import SpecError
from see_tune.losses import LOSSES
from see_tune.spec import keys
from see_tune.spec.document import Findings
from see_tune.spec.models import ChoiceEntry, FloatEntry, IntEntry, StudySpec, TrialSpec
from see_tune.spec.space import Choice, Domain, FloatRange, IntRange, Value, among, is_multiple
from see_tune.spec.values import apply, read, trial_values
from see_tune.spec.words import describe

FORMS = "{int: [low, high]}, {float: [low, high]} or {choice: [a, b]}, with log, step and when beside them"

Entry = IntEntry | FloatEntry | ChoiceEntry


def check_names(findings: Findings) -> None:
    """Refuse searched keys that do not exist or may not vary: what can be said of `search` without the rest of the file."""
    block = findings.document.values.get("search")
    for name in block if isinstance(block, dict) else {}:
        message = _why_unsearchable(name)
        if message:
            findings.refuse(("search", name), message)


def _why_unsearchable(name: str) -> str | None:
    if name not in keys.schemas():
        valid = keys.searchable()
        block = name.rpartition(".")[0]
        siblings = [key for key in valid if block and key.startswith(f"{block}.")]
        words = ", ".join(siblings) or "the dotted name of a number, boolean or choice under model, loss, see or train"
        return f"unknown key{keys.nearest(name, valid) or '.'} valid: {words}"
    reason = keys.why_fixed(name)
    return f"cannot be searched: {reason}" if reason else None


def domain_of(entry: Entry) -> Domain:
    """What an entry says, unchecked."""
    if isinstance(entry, IntEntry):
        return IntRange(*entry.int_, entry.log, entry.step)
    if isinstance(entry, FloatEntry):
        return FloatRange(*entry.float_, entry.log, entry.step)
    return Choice(tuple(entry.choice))


def read_domains(spec: StudySpec, findings: Findings) -> dict[str, Domain]:
    """The domain of every searched key, in the file's order."""
    trial = trial_values(spec)
    domains: dict[str, Domain] = {}
    for name, entry in spec.search.items():
        try:
            domains[name] = _choice(trial, name, entry) if isinstance(entry, ChoiceEntry) else _range(name, entry)
        except _EntryError as error:
            findings.refuse(("search", name, error.part), str(error), key=f"search.{name}")
    for name, domain in domains.items():
        refusal = _refusal(trial, name, domain, _tightest(name, spec.search, domains))
        if refusal:
            findings.refuse(("search", name), refusal)
    return domains


class _EntryError(Exception):
    """An entry is wrong; `part` is the key in it that says so."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


def _range(name: str, entry: IntEntry | FloatEntry) -> IntRange | FloatRange:
    form, (low, high) = ("int", entry.int_) if isinstance(entry, IntEntry) else ("float", entry.float_)
    kinds = keys.kinds(name)
    if not kinds & {"number", "whole number"}:
        raise _EntryError(form, f"takes {describe(name)}; write {{choice: [...]}} instead of {form}")
    if form == "float" and "number" not in kinds:
        raise _EntryError(form, f"takes {describe(name)}; write {{int: [low, high]}} instead of float")
    if low > high:
        raise _EntryError(form, f"low {low:g} is above high {high:g}; write {{{form}: [{high:g}, {low:g}]}}")
    if low == high:
        raise _EntryError(form, f"low and high are both {low:g}: nothing varies; set {name}: {low:g} outside `search` instead")
    domain = domain_of(entry)
    assert not isinstance(domain, Choice)
    _check_steps(domain)
    return domain


def _check_steps(domain: IntRange | FloatRange) -> None:
    low, high = domain.low, domain.high
    step = None if isinstance(domain, IntRange) and domain.step == 1 else domain.step
    if domain.log and low <= 0:
        raise _EntryError("log", f"a log range needs a low above 0, found {low:g}; raise it, or drop log")
    if domain.log and step is not None:
        raise _EntryError("step", f"log and step {step:g} exclude each other; drop one, or list values in {{choice: [...]}}")
    if step is not None and not is_multiple(high - low, step):
        last = low + int((high - low) / step) * step
        raise _EntryError("step", f"steps of {step:g} from {low:g} do not reach {high:g}; end at {last:g} or {last + step:g}")


def _choice(trial: TrialSpec, name: str, entry: ChoiceEntry) -> Choice:
    options: list[Value] = []
    for option in entry.choice:
        value = as_field(trial, name, option)
        if value is None:
            raise _EntryError("choice", f"the choice {option!r} does not fit; valid: {describe(name)}")
        if among(value, options):
            raise _EntryError("choice", f"the choice {option!r} is there twice; name each value once")
        options.append(value)
    if len(options) == 1:
        raise _EntryError("choice", f"one choice: nothing varies; set {name}: {options[0]} outside `search` instead")
    return Choice(tuple(options))


def as_field(trial: TrialSpec, name: str, value: Any) -> Value | None:
    """`value` in the type of its field (a whole number for a float field becomes a float); None where it does not fit.

    Rules between fields do not count here: SEE is off and the dimension is out of the way.
    """
    roomy: dict[str, Value] = {"see.enabled": False}
    if name == "see.enabled":
        roomy = {"see.n_aug": 1, "loss.name": next(loss for loss, entry in LOSSES.items() if entry.has_proxies)}
    try:
        return read(apply(apply(trial, roomy), {name: value}), name)
    except SpecError:
        return None


def _refusal(trial: TrialSpec, name: str, domain: Domain, others: Mapping[str, Value]) -> str | None:
    verb = "be" if isinstance(domain, Choice) else "reach"
    for value in domain.extremes:
        try:
            apply(trial, {**others, name: value})
        except SpecError as error:
            return f"may not {verb} {value}: {str(error).removeprefix(f'{name}: ')}"
    return None


def _tightest(name: str, search: Mapping[str, Entry], domains: Mapping[str, Domain]) -> dict[str, Value]:
    """What the other searched keys may be beside `name` that leaves its values the least room."""
    others: dict[str, Value] = {}
    when = search[name].when
    if "see.enabled" in search and name != "see.enabled" and (name.startswith("see.") or not search["see.enabled"].when):
        others["see.enabled"] = True
    if "see.n_aug" in search and name != "see.n_aug" and not search["see.n_aug"].when:
        others["see.n_aug"] = 1  # never its own value, so that its own entry answers for it
    if "model.embedding_dim" in domains and name == "see.n_aug":
        others["model.embedding_dim"] = _smallest(domains["model.embedding_dim"], when.get("model.embedding_dim"))
    if "loss.name" in search and name.startswith("see."):
        able = [loss for loss in when.get("loss.name", LOSSES) if isinstance(loss, str) and _has_proxies(loss)]
        others |= {"loss.name": able[0]} if able else {}  # a loss without proxies answers for itself
    return others


def _has_proxies(loss: str) -> bool:
    return loss in LOSSES and LOSSES[loss].has_proxies


def _smallest(domain: Domain, allowed: list[Any] | None) -> int:
    possible = [value for value in domain.extremes if allowed is None or value in allowed] or domain.extremes
    return min(int(value) for value in possible)


def in_type(domain: Domain, value: Value) -> Value:
    """A float field's whole value as the int that an int range over that field suggests."""
    return int(value) if isinstance(domain, IntRange) and isinstance(value, float) and value.is_integer() else value
