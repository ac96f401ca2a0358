"""A trained model by whatever name a user has for it.

models:/see-tune.cars196@champion, models:/see-tune.cars196/3    a version in the registry
runs/studies/cars/trials/final-see-t017-e41-s0                   a training's folder
runs/studies/cars/model                                          a model folder (model.safetensors, model.json)
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from see_tune.addresses import AUTO, LOCAL, find_tracking
from see_tune.errors import CheckpointError, StudyError, WeightsError
from see_tune.home import Home
from see_tune.model_folder import StoredModel, load_model_folder
from see_tune.studies import frozen, stored_result
from see_tune.tracking.connection import reached
from see_tune.tracking.registry import Candidate, RegisteredVersion, fetch_model_folder, read_versions
from see_tune.training import load_trained

if TYPE_CHECKING:
    from mlflow import MlflowClient

_VALID = (
    "valid: models:/see-tune.DATASET@champion, models:/see-tune.DATASET/VERSION, or the folder of a training "
    "(HOME/studies/STUDY/trials/LINEAGE)"
)
_URI = re.compile(r"models:/see-tune\.(?P<dataset>[\w.-]+)(?:@(?P<alias>[\w-]+)|/(?P<version>\d+))")


def open_model(name: str, home: Home, tracking: str = AUTO) -> StoredModel:
    """The model that `name` means, in evaluation mode, on the CPU.

    tracking: ``auto``, ``local``, or the ``http(s)://host:port`` whose registry a ``models:/`` URI is looked up in.

    Raises:
        StudyError: the registry has no such version.
        WeightsError: there is no such folder, or it holds no model.
    """
    if name.startswith("models:/"):
        return _from_registry(name, home, tracking)
    folder = Path(name).expanduser()
    if (folder / "model.json").is_file():
        return load_model_folder(folder)
    if not folder.is_dir():
        raise WeightsError(f"there is no model {name!r}; {_VALID}")
    try:
        return load_trained(folder)
    except CheckpointError as error:
        raise WeightsError(f"{name!r} is no training with a model: {error} Otherwise {_VALID}") from error


def resolve_version(uri: str, home: Home, tracking: str = AUTO) -> str:
    """The ``models:/see-tune.DATASET/VERSION`` that a registry's URI means now; an alias may mean another one tomorrow.

    Raises:
        StudyError: the registry has no such version.
    """
    with _registered(uri, home, tracking) as (_, version):
        return f"models:/{version.model}/{version.version}"


def _from_registry(uri: str, home: Home, tracking: str) -> StoredModel:
    with (
        _registered(uri, home, tracking) as (client, version),
        tempfile.TemporaryDirectory(prefix="see-tune-model-") as fetched,
    ):
        stored = load_model_folder(fetch_model_folder(client, version, Path(fetched)))
    return _with_root(stored, version.candidate, home)


@contextmanager
def _registered(uri: str, home: Home, tracking: str) -> Iterator[tuple[MlflowClient, RegisteredVersion]]:
    """The version that a URI means, and the registry it is in."""
    matched = _URI.fullmatch(uri)
    if matched is None:
        raise StudyError(
            f"{uri!r} names no version; valid: models:/see-tune.DATASET@champion or models:/see-tune.DATASET/VERSION"
        )
    server = find_tracking(tracking)
    if server == LOCAL and not home.mlflow_db.is_file():
        raise StudyError(f"{uri} is not in the registry of {home.root}: nothing was tracked there yet. Another home: --home DIR")
    with reached(home, tracking) as client:
        versions = read_versions(client, matched["dataset"])
        chosen = [version for version in versions if _is_meant(version, matched["alias"], matched["version"])]
        if not chosen:
            known = ", ".join(f"{version.version} ({' '.join(version.aliases) or 'no alias'})" for version in versions) or "none"
            where, another = (home.root, "home: --home DIR") if server == LOCAL else (server, "server: --tracking URL")
            raise StudyError(f"{uri} is not in the registry of {where}; versions there: {known}. Another {another}")
        yield client, chosen[0]


def _with_root(stored: StoredModel, trained: Candidate, home: Home) -> StoredModel:
    """The model with the path to its pictures, which no model holds, where its study in this home knows it."""
    folder = home.study(trained.study)
    result = stored_result(folder) if folder.spec_file.is_file() else None
    if result is None or result.test_looks is None or result.test_looks.fingerprint != trained.fingerprint:
        return stored
    dataset = stored.spec.dataset.model_copy(update={"root": frozen(folder).spec.dataset.root})
    return replace(stored, spec=stored.spec.model_copy(update={"dataset": dataset}))


def _is_meant(version: RegisteredVersion, alias: str | None, number: str | None) -> bool:
    return alias in version.aliases if alias else str(version.version) == number
