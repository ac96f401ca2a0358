"""`see-tune run --dry-run`: what would run, with nothing started, and what would be refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from see_tune.cli.options import Until
from see_tune.errors import UserError
from see_tune.home import Home
from see_tune.spec.load import Loaded
from see_tune.spec.models import StudySpec
from see_tune.wording import counted

if TYPE_CHECKING:
    from see_tune.checks import DatasetFacts


def print_plan(loaded: Loaded, home: Home, until: Until, *, fresh: bool, smoke: bool, as_json: bool, measure: bool) -> None:
    """Space, trials, phases, resources, and where results go; with `measure`, how long it takes at most.

    fresh, smoke: as for `run`: nothing that was begun under this name stands in the way.

    Raises: UserError, below the plan, with everything that `run` would refuse now.
    """
    started = _anew(loaded) if fresh or smoke else loaded
    refusal, facts = _refusal(started, home, until)
    plan = {"study": loaded.spec.study, **_plan(started, home, until, facts)}
    plan["results"] = f"a throw-away folder in {home.root}" if smoke else str(home.study(loaded.spec.study).root)
    if smoke:
        plan["tracking"] = "in the same folder"
    if measure and refusal is None:
        plan |= _measured_times(loaded, home, until)
    if as_json:
        print(json.dumps(plan, indent=2))
    else:
        width = max(map(len, plan))
        for key, value in plan.items():
            for index, line in enumerate(_lines(value)):
                print(f"{key if index == 0 else '':<{width}}  {line}")
    if refusal is not None:
        raise refusal


def _anew(loaded: Loaded) -> Loaded:
    """The same study under a name that none can have: what was begun under its own is not asked."""
    return replace(loaded, spec=loaded.spec.model_copy(update={"study": ".anew"}))


def _refusal(loaded: Loaded, home: Home, until: Until) -> tuple[UserError | None, DatasetFacts | None]:
    """Why `run` would not start (None: it would, or has nothing left to do), and what its dataset is, where that can be told."""
    from see_tune.checks import glance
    from see_tune.spec.load import trial_values
    from see_tune.start import check_start
    from see_tune.studies import changed_settings, finished_note, frozen, settled

    refusal = None
    try:
        if (stored := settled(loaded, home, until)) is None:
            if (folder := home.study(loaded.spec.study)).spec_file.is_file():
                before = frozen(folder).spec
                for line in changed_settings(before, loaded.spec):
                    print(line, file=sys.stderr)
                if before.search != loaded.spec.search:
                    print("the search space has changed: the finished trials that fit it are kept", file=sys.stderr)
            facts = check_start(loaded, home)
            for note in facts.notes:
                print(f"note: {note}", file=sys.stderr)
            return None, facts
        print(finished_note(stored), file=sys.stderr)
    except UserError as error:
        refusal = error
    try:
        return refusal, glance(trial_values(loaded.spec), home)
    except UserError:  # the refusal says it, or the answer is there already
        return refusal, None


def _plan(loaded: Loaded, home: Home, until: Until, facts: DatasetFacts | None) -> dict[str, Any]:
    from see_tune.addresses import find_storage
    from see_tune.search.protocol import plan_text
    from see_tune.spec.load import grace_epochs, trial_values
    from see_tune.start import plan_resources

    spec = loaded.spec
    resources = plan_resources(spec)
    trial = trial_values(spec)
    judged = "no pruning" if spec.pruner.name == "none" else f"{spec.pruner.name} from epoch {grace_epochs(loaded)}"
    return {
        "dataset": spec.dataset.called,
        "model": f"{spec.model.backbone}, {counted(spec.model.embedding_dim, 'dimension')}, weights {spec.model.weights}",
        "loss": spec.loss.name,
        "objective": f"{trial.objective_metric} on {_measured_on(spec, facts)}",
        "search": {parameter.name: str(parameter.domain) for parameter in loaded.space.parameters},
        "trials": f"{_trials(loaded)} of {_epochs(spec)}; {spec.sampler.name}, {judged}",
        "trial 0": loaded.trial_zero or "not the file's values: one lies outside its range",
        "then": "nothing: --until search" if until == "search" else plan_text(spec),
        "side by side": f"{resources.slots} at most, each with {resources.cpus} CPU and {resources.gpus:g} GPU",
        "storage": find_storage(home.study(spec.study), spec.study, spec.storage).kind,
        "results": "",
        **_tracking(home, spec.tracking.uri),
    }


def _tracking(home: Home, stated: str) -> dict[str, str]:
    """Where a study is tracked, and whether a server would take it now; one that is away holds up no study."""
    from see_tune.addresses import LOCAL, find_tracking
    from see_tune.errors import TrackingServerError
    from see_tune.tracking.connection import answers, store_uri

    uri = store_uri(home, stated)
    if find_tracking(stated) == LOCAL:
        return {"tracking": uri}
    try:
        return {"tracking": uri, "server": answers(home, stated)}
    except TrackingServerError as error:
        print(f"note: {error}", file=sys.stderr)
        return {"tracking": uri, "server": "away; will spool: what is tracked waits in the study's folder until it answers"}


def _measured_times(loaded: Loaded, home: Home, until: Until) -> dict[str, str]:
    """Trains one epoch of trial 0 here, with its backbone and with all of SEE, as most epochs are."""
    from see_tune.checks import preflight
    from see_tune.cli.show import duration
    from see_tune.errors import StudyFailedError
    from see_tune.search.protocol import plan_epochs
    from see_tune.spec.load import apply, trial_values
    from see_tune.start import plan_resources
    from see_tune.training import train

    spec, resources = loaded.spec, plan_resources(loaded.spec)
    trial = apply(trial_values(spec), {"train.freeze_backbone_epochs": 0, "see.pace.shape": "constant"})
    preflight(spec, trial, home)
    print("training one epoch of trial 0 to measure it; nothing of it is kept", file=sys.stderr, flush=True)
    result = train(trial.model_copy(update={"stop_epoch": 1, "members": ()}), home=home, threads=resources.cpus)
    if result.status != "complete":
        raise StudyFailedError(f"the measured epoch failed: {result.cause}\nSee it alone: see-tune train {loaded.source}")
    epoch_s = result.epochs[0].duration_s
    planned = plan_epochs(spec, min(spec.budget.trials, loaded.space.size or spec.budget.trials))
    search_s = (planned.search + planned.baseline) * epoch_s / resources.slots
    times = {
        "an epoch": f"{epoch_s:.3g} s, measured on {result.device} with {resources.cpus} CPU",
        "search takes": f"at most {duration(search_s)} of training, SEE off beside it included{_pruned_sooner(spec)}",
    }
    if until != "search" and planned.final:
        times["then takes"] = f"at most {duration(planned.final * epoch_s / resources.slots)} more"
    return times


def _pruned_sooner(spec: StudySpec) -> str:
    return "" if spec.pruner.name == "none" else "; what is pruned ends sooner"


def _measured_on(spec: StudySpec, facts: DatasetFacts | None) -> str:
    if spec.protocol == "paper":
        return "the test classes, epoch by epoch, as the papers did: never a champion"
    folds, fraction = spec.validation.folds, spec.validation.fraction
    classes = (
        f"{counted(folds or 0, 'fold')} of the training classes"
        if fraction is None
        else f"{fraction:.0%} of the training classes"
    )
    if facts is not None and fraction is not None:
        whose = f"the {spec.dataset.name}'s own validation split" if facts.own_validation else classes
        classes = f"{whose} ({counted(facts.measured_images, 'image')} of {counted(facts.measured_classes, 'class')})"
    seeds = counted(spec.repeat, "seed") if spec.repeat > 1 else ""
    averaged = " and ".join(part for part in ("folds" if folds else "", seeds) if part)
    return classes + (f", the mean over {averaged}" if averaged else "")


def _trials(loaded: Loaded) -> str:
    trials, size = loaded.spec.budget.trials, loaded.space.size
    return f"{size} (all points; budget.trials {trials})" if size is not None and size < trials else str(trials)


def _epochs(spec: StudySpec) -> str:
    members = (spec.validation.folds or 1) * spec.repeat
    epochs = counted(spec.train.epochs, "epoch")
    return f"{members} x {epochs}" if members > 1 else epochs


def _lines(value: Any) -> list[str]:
    return [f"{name}: {part}" for name, part in value.items()] if isinstance(value, dict) else [str(value)]
