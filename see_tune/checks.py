"""Checks before a study starts: what would fail later is said now, all of it in one list.

Each check is a function that returns what is wrong with it, or nothing. What a check had to find out anyway (the dataset's
fingerprint, the split's hash) is kept for the study.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from see_tune.addresses import LOCAL, find_storage, find_tracking
from see_tune.data import read_table
from see_tune.data.inspection import find_undecodable, undecodable_of
from see_tune.data.splits import split_table
from see_tune.data.table import VALIDATION, ImageTable
from see_tune.errors import DatasetError, SeeTuneError, SpecError, StudyError, UserError
from see_tune.home import Home, dataset_places
from see_tune.machine import check_faiss, count_gpus
from see_tune.model_check import wrong_model
from see_tune.mounts import network_file_system
from see_tune.spec.models import SplitSpec, StudySpec, TrialSpec

_CHECKPOINT_ROOM = 2 * 2**30


@dataclass(frozen=True)
class DatasetFacts:
    """What the study's numbers are about: logged with every run.

    measured_classes, measured_images: what a trial is measured on.
    own_validation: whether that is a validation split that the dataset comes with.
    """

    fingerprint: str
    split: str
    train_classes: int
    train_images: int
    measured_classes: int
    measured_images: int
    own_validation: bool
    notes: tuple[str, ...]


def preflight(
    study: StudySpec,
    trial: TrialSpec,
    home: Home,
    *,
    gpus: Mapping[str, int] | None = None,
    elsewhere: Callable[[], Iterable[SeeTuneError]] = tuple,
    progress: Callable[[int, int], None] | None = None,
    thorough: bool = True,
) -> DatasetFacts:
    """Everything that can be known before the first trial.

    gpus: how many each machine that is to run trials has; None: those of this machine.
    elsewhere: what is wrong on other machines (the storage's server, the nodes of a cluster); asked once.
    progress: called with (done, total) while images are decoded, once for each state of the files.
    thorough: False leaves out what takes its time and leaves nothing in the home: no image is opened, no weights are fetched.

    Raises:
        UserError: the one thing that is wrong, as it is, or all of them in one list.
    """
    machines = {"this machine": count_gpus()} if gpus is None else gpus
    with _cache_of(home, kept=thorough) as reading:
        problems = list(_problems(study, trial, home, reading, machines, elsewhere, thorough=thorough))
        if thorough and not problems:  # opening every image takes minutes: what is known at once is said at once
            problems = list(_wrong_images(study, trial, reading, progress))
        if len(problems) == 1:
            raise problems[0]
        if problems:
            raise UserError("the study cannot start:\n" + "\n".join(f"  - {problem}" for problem in problems))
        facts = dataset_facts(trial if thorough else _unopened(trial), reading)
    return replace(facts, notes=(*facts.notes, *_shared_tracking(study, home)))


@contextmanager
def _cache_of(home: Home, *, kept: bool) -> Iterator[Home]:
    """A home to read datasets through: its own, or, where nothing may be left in it and it has no cache yet, another's."""
    if kept or home.cache.is_dir():
        yield home
        return
    with tempfile.TemporaryDirectory(prefix="see-tune-") as nowhere:
        yield Home(Path(nowhere))


def _unopened(trial: TrialSpec) -> TrialSpec:
    """The trial on its dataset as it is listed: leaving out what does not decode means to open every image."""
    return trial.model_copy(update={"dataset": trial.dataset.model_copy(update={"on_corrupt": "fail"})})


def _problems(
    study: StudySpec,
    trial: TrialSpec,
    home: Home,
    reading: Home,
    gpus: Mapping[str, int],
    elsewhere: Callable[[], Iterable[SeeTuneError]],
    *,
    thorough: bool,
) -> Iterator[SeeTuneError]:
    if (unfit := unwritable(home.root)) is not None:
        yield unfit
        return  # rendered glyphs and the list of broken images are written there
    for check in (check_faiss, lambda: _refuse_shared_sqlite(study, home), lambda: find_tracking(study.tracking.uri)):
        try:
            check()
        except UserError as error:
            yield error
    yield from elsewhere()
    wrong = list(_wrong_dataset(study, _unopened(trial), reading))
    yield from wrong
    fetch = thorough and not wrong  # weights are not fetched for pictures that are not there
    yield from wrong_model(trial, reading.cache, fetch=fetch)
    if (short := _short_of_gpus(study, gpus)) is not None:
        yield short


def _wrong_dataset(study: StudySpec, trial: TrialSpec, reading: Home) -> Iterator[DatasetError]:
    try:
        table = read_dataset(trial, reading)
    except DatasetError as error:
        yield error
        return
    yield from {str(error): error for split in _splits(study, trial) for error in _unsplittable(table, split)}.values()


def _wrong_images(
    study: StudySpec, trial: TrialSpec, reading: Home, progress: Callable[[int, int], None] | None
) -> Iterator[DatasetError]:
    """Images that do not decode; or, where those are left out, what is wrong with the rest."""
    if trial.dataset.on_corrupt == "skip":
        yield from _wrong_dataset(study, trial, reading)
        return
    try:
        _refuse_undecodable(read_dataset(trial, reading), trial.dataset.root, reading, progress)
    except DatasetError as error:
        yield error


def _unsplittable(table: ImageTable, split: SplitSpec) -> Iterator[DatasetError]:
    try:
        split_table(table, **split.model_dump())
    except DatasetError as error:
        yield error


def _splits(study: StudySpec, trial: TrialSpec) -> Iterator[SplitSpec]:
    """Of the search, the re-ranking and the final runs: what the last of them would meet is known before the first trial."""
    yield from (member.split for member in trial.members) if trial.members else (trial.split,)
    if study.final is not None:
        if study.validation.reranked and study.protocol == "honest":
            folds = study.validation.rerank_folds
            yield from (SplitSpec(kind="fold", seed=study.seed, folds=folds, fold=fold) for fold in range(folds))
        yield SplitSpec(kind="test")


def dataset_facts(trial: TrialSpec, home: Home) -> DatasetFacts:
    """Read the table (no image is opened) and split it as the trials will."""
    table = read_dataset(trial, home)
    split = split_table(table, **trial.split.model_dump())
    measured = split.query_rows if split.gallery_rows is None else np.union1d(split.query_rows, split.gallery_rows)
    return DatasetFacts(
        fingerprint=table.fingerprint(),
        split=split.hash,
        train_classes=split.num_classes,
        train_images=len(split.train_rows),
        measured_classes=len(np.unique(table.labels[measured])),
        measured_images=len(measured),
        own_validation=bool((table.split[measured] == VALIDATION).all()),
        notes=(*table.notes, *split.notes),
    )


def glance(trial: TrialSpec, home: Home) -> DatasetFacts:
    """`dataset_facts` of the dataset as it is listed, with nothing left in the home. Raises: DatasetError."""
    with _cache_of(home, kept=False) as reading:
        return dataset_facts(_unopened(trial), reading)


def read_dataset(trial: TrialSpec, home: Home) -> ImageTable:
    """The table of the trial's dataset, as a training reads it. Raises: DatasetError."""
    dataset = trial.dataset
    return read_table(
        dataset.name,
        places=dataset_places(dataset.name, dataset.root),
        cache=home.cache,
        classes=dataset.classes,
        allow_partial=dataset.allow_partial,
        on_corrupt=dataset.on_corrupt,
    )


def _refuse_undecodable(table: ImageTable, root: str | None, home: Home, progress: Callable[[int, int], None] | None) -> None:
    """A broken image ends a study here and not in the middle of its third trial. root: as the user gave it."""
    failed = find_undecodable(table, cache=home.cache, progress=progress)
    if failed:
        check = home.command("datasets", "check", table.name, *(("--root", root) if root else ()))
        raise DatasetError(
            f"{table.name}: {undecodable_of(len(failed), table)}. The first: {next(iter(failed.values()))}. "
            f"All of them: {check}. Mend them, or leave them out with dataset.on_corrupt: skip"
        )


def _short_of_gpus(study: StudySpec, gpus: Mapping[str, int]) -> SpecError | None:
    wanted = study.resources.gpus
    if wanted == "auto" or wanted <= max(gpus.values(), default=0):
        return None
    machines = ", ".join(f"{host} has {count}" for host, count in gpus.items())
    return SpecError(f"resources.gpus: a trial asks for {wanted:g} GPU and {machines}; set resources.gpus: auto or 0")


def _refuse_shared_sqlite(study: StudySpec, home: Home) -> None:
    folder = home.study(study.study)
    kind = network_file_system(home.root)
    if kind and find_storage(folder, study.study, study.storage).kind == LOCAL:
        raise StudyError(
            f"storage: local keeps the trials in a sqlite file, and {home.root} lies on {kind}, a network file system, where "
            f"such files are corrupted; state storage: journal (a file made for it) or postgresql+psycopg://USER@HOST/DATABASE, "
            f"or choose a home on a disk of this machine with --home DIR"
        )


def _shared_tracking(study: StudySpec, home: Home) -> Iterator[str]:
    kind = network_file_system(home.root)
    if kind and find_tracking(study.tracking.uri) == LOCAL:
        yield (
            f"tracking.uri: local keeps MLflow's runs in a sqlite file on {kind}, a network file system: run studies of this "
            f"home from one machine at a time, or state the address of an MLflow server"
        )


def unwritable(root: Path, named: str = "the home folder", another: str = "--home DIR or SEE_TUNE_HOME") -> UserError | None:
    """Why nothing can be kept under `root`, which need not exist yet; None where it can.

    named: what people call it. another: what chooses another one.
    """
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        why = error.strerror or error
        return UserError(f"{named} {root} cannot be written ({why}); choose another with {another}")
    if (free := shutil.disk_usage(existing).free) < _CHECKPOINT_ROOM:
        return UserError(
            f"{existing} has {free / 2**30:.1f} GiB free; checkpoints want 2 GiB: free some, or choose another with {another}"
        )
    return None
