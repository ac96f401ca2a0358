"""Which searched values separate the best trials from the rest: PED-ANOVA (Watanabe et al., IJCAI 2023), and in words.

It compares where the best tenth of the complete trials lies with where all of them lie, and takes conditional values as they
come. It says what decided among the trials that ran, not what would decide in general.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from see_tune.search.rows import FinishedRow
from see_tune.spec.space import Choice, Domain, FloatRange, IntRange, Space
from see_tune.wording import counted

_LEAST_TRIALS = 4
_FEW_TRIALS = 20
_NAMED = 3


def as_optuna_study(complete: Sequence[FinishedRow], space: Space) -> optuna.Study:
    """Complete rows as an Optuna study in memory, values in percent, for Optuna's own evaluations and figures."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize")
    domains = {parameter.name: _distribution(parameter.domain) for parameter in space.parameters}
    for row in complete:
        trial = optuna.trial.create_trial(
            value=100 * (row.value or 0.0), params=dict(row.values), distributions={name: domains[name] for name in row.values}
        )
        study.add_trial(trial)
    return study


def importances(complete: Sequence[FinishedRow], space: Space) -> dict[str, float]:
    """Searched key -> share of the total importance, most important first; empty where the trials cannot tell."""
    if len(complete) < _LEAST_TRIALS:
        return {}
    study = as_optuna_study(complete, space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that all trials are equal shows as importances of 0
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), normalize=False)
    total = sum(found.values())
    return {name: value / total for name, value in sorted(found.items(), key=lambda item: -item[1])} if total > 0 else {}


def _distribution(domain: Domain) -> BaseDistribution:
    match domain:
        case IntRange(low, high, log, step):
            return IntDistribution(low, high, log=log, step=step)
        case FloatRange(low, high, log, step):
            return FloatDistribution(low, high, log=log, step=step)
        case Choice(options):
            return CategoricalDistribution(options)


def in_words(shares: Mapping[str, float], complete: int) -> str:
    """A sentence that a reader without statistics can use."""
    if not shares:
        return (
            f"{counted(complete, 'complete trial')}: too few, or too equal, to say which value matters "
            f"(at least {_LEAST_TRIALS} are needed, with different results)."
        )
    if len(shares) == 1:
        return f"Only {next(iter(shares))} was searched, so all of the difference is its own."
    first, *others = [f"{name} ({share:.0%})" for name, share in list(shares.items())[:_NAMED]]
    rest = " and ".join(others)
    sentence = f"What the best of {counted(complete, 'complete trial')} have in common lies mostly in {first}, then in {rest}."
    hint = f" With fewer than {_FEW_TRIALS} trials this is a hint, not a finding." if complete < _FEW_TRIALS else ""
    return sentence + hint
