"""What an epoch, a trial and a study leave behind: frozen records with a JSON round trip.

They are what crosses every wall of the house: the trainer hands out EpochResults, the ledger and the tracker take them,
the checkpoint carries their history.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

TrialStatus = Literal["complete", "pruned", "failed", "interrupted"]
StudyEnd = Literal["done", "interrupted", "failed"]


class _JsonRecord:
    """JSON round trip for the frozen dataclasses below: ``Record.from_json(record.to_json()) == record``."""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), allow_nan=False)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)


@dataclass(frozen=True)
class EpochResult(_JsonRecord):
    """One finished epoch of one trial.

    epoch: number of epochs finished, counted from 1.
    metrics: finite floats by their MLflow names (``train/loss``, ``val/recall_at_1``, ``see/share``, ``test/map_at_r``);
        recalls are shares in 0..1.
    timestamp: Unix time of the epoch's end, in seconds; it makes delivery to MLflow idempotent.
    duration_s: wall-clock seconds of training and evaluating this epoch.
    """

    epoch: int
    metrics: Mapping[str, float]
    timestamp: float
    duration_s: float


@dataclass(frozen=True)
class TrialResult(_JsonRecord):
    """How one trial ended.

    status: ``complete`` (reached its last epoch), ``pruned``, ``failed`` (deterministic; `cause` says why) or
        ``interrupted`` (asked to stop; its checkpoint continues it).
    epochs: the whole history, also across resumes.
    best_epoch, best_value: where the objective was highest, or None where it was never measured.
    """

    status: TrialStatus
    epochs: tuple[EpochResult, ...] = ()
    best_epoch: int | None = None
    best_value: float | None = None
    cause: str | None = None
    traceback: str | None = None
    device: str = "cpu"
    facts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        epochs = tuple(EpochResult.from_dict(epoch) for epoch in values.get("epochs", ()))
        return cls(**{**values, "epochs": epochs})


def best_epoch(epochs: tuple[EpochResult, ...], metric: str) -> tuple[int, float] | None:
    """The first epoch with the highest finite value of `metric`, and that value; None where it was never measured."""
    measured = [(epoch.metrics[metric], -epoch.epoch) for epoch in epochs if metric in epoch.metrics]
    if not measured:
        return None
    value, negative_epoch = max(measured)
    return -negative_epoch, value


@dataclass(frozen=True)
class Interval(_JsonRecord):
    """A mean with its 95 % interval; low and high are None where a single value gives none."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Looks(_JsonRecord):
    """How often a dataset's test classes were looked at from one home.

    times: measurements by studies, of which there were `studies`. by_hand: those that people asked for beside them.
    fingerprint: of the dataset, by which they can be counted again; empty in summaries from before it was kept.
    """

    times: int
    studies: int
    by_hand: int
    fingerprint: str = field(default="", compare=False)


@dataclass(frozen=True)
class Arm(_JsonRecord):
    """One of the two things a study compares: SEE with the best values found, or SEE off.

    values: the searched values it was chosen with.
    see_enabled: False for SEE off, also where a study was told to search without it.
    see_expands: whether SEE expands anything up to `epoch`; where it does not, it trained as SEE off does.
    lineage: the search trial (or the baseline row) it comes from.
    validation: metrics at `epoch` on the held-out training classes (the mean over folds where it was re-ranked).
    epoch: e*, after which its final runs end.
    test: metric -> one value per final seed, in the order of `seeds`; empty without a final phase.
    """

    lineage: str
    values: Mapping[str, Any]
    validation: Mapping[str, float]
    epoch: int
    reranked: bool = False
    seeds: tuple[int, ...] = ()
    test: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    test_mean: Mapping[str, Interval] = field(default_factory=dict)
    see_enabled: bool = True
    see_expands: bool = True

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        restored = {
            **values,
            "seeds": tuple(values["seeds"]),
            "test": {key: tuple(series) for key, series in values["test"].items()},
            "test_mean": {key: Interval.from_dict(interval) for key, interval in values["test_mean"].items()},
        }
        return cls(**restored)


@dataclass(frozen=True)
class StudyResult(_JsonRecord):
    """What a study answered: the summary on the terminal, `--json` and summary.json.

    status: ``done``, ``interrupted`` (the same command continues it) or ``failed`` (so it does, once the cause is mended).
    see, off: the two arms; None where none completed.
    gain: the paired difference SEE - off of test Recall@1, with its interval over training seeds (Student's t); None
        where one of them is missing, or the configuration that was chosen has SEE off.
    test_looks: at this dataset's test classes so far, by this study and others of its home; None before any.
    gain_over_classes: the same mean, with its interval over test classes (bootstrap); None where queries were not kept.
    champion: the registered version's URI; None where nothing was registered, and `champion_note` says why.
    undelivered: events that the tracking server has not taken yet; the next start delivers them.
    tracking_problems: why it has not, and what it refused.
    quarantined: devices and nodes that got no more trials in the last session, and the last failure of each.
    search_ended: what ended the search: ``trials``, ``hours``, ``device_hours`` or ``exhausted``; empty where it would go on.
    """

    study: str
    dataset: str
    protocol: str
    status: StudyEnd
    trials: int
    complete: int
    pruned: int
    failed: int
    failures: Mapping[str, str]
    see: Arm | None
    off: Arm | None
    gain: Interval | None
    champion: str | None
    champion_note: str
    wall_s: float
    device_hours: float
    folder: str
    tracking: str
    undelivered: int
    tracking_problems: tuple[str, ...]
    commands: Mapping[str, str]
    search_ended: str = ""
    quarantined: Mapping[str, str] = field(default_factory=dict)
    gain_over_classes: Interval | None = None
    test_looks: Looks | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        restored = {
            **values,
            "see": Arm.from_dict(values["see"]) if values["see"] else None,
            "off": Arm.from_dict(values["off"]) if values["off"] else None,
            "gain": Interval.from_dict(values["gain"]) if values["gain"] else None,
            "gain_over_classes": Interval.from_dict(over) if (over := values.get("gain_over_classes")) else None,
            "test_looks": Looks.from_dict(looks) if (looks := values.get("test_looks")) else None,
            "tracking_problems": tuple(values["tracking_problems"]),
        }
        return cls(**restored)
