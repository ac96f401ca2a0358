"""The champion: which version of ``see-tune.<dataset>`` the alias ``champion`` names.

    models:/see-tune.cars196@champion                                       the best of the dataset
    models:/see-tune.cars196@deit_small_distilled_patch16_224-128           the best of its size

A version is promoted by its re-ranked validation mean, and only against versions with the same dataset fingerprint, split,
protocol, crop and objective: numbers that were measured differently are not compared, and the test classes choose nothing.
What was chosen on the test classes (``protocol: paper``) is registered, tagged so, and never gets an alias.

MLflow has no compare-and-set for an alias, so two studies that end together could each see only their own version. Hence:
register, choose the best of all versions, set, read again, until the reading agrees; the later of the two readers sees both.
"""

from __future__ import annotations

import base64
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from see_tune.data import DATASETS
from see_tune.errors import StudyError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

CHAMPION = "champion"

_TAG_PREFIX = "see_tune."
_PYFUNC_FOLDER = "model"  # below the artifacts of the run
_MODEL_FOLDER = "embedder"  # below the artifacts of the pyfunc
_PYFUNC_CODE = Path(__file__).with_name("pyfunc_model.py")
# Not see-tune itself: a name that an index might serve to anybody who holds it must not be installed from there.
_REQUIREMENTS = ("mlflow", "torch", "torchvision", "timm", "safetensors", "pydantic", "numpy", "pandas", "pillow")
_COMPARED = ("fingerprint", "split_hash", "protocol", "crop", "objective")


@dataclass(frozen=True)
class Candidate:
    """A model that asks to be champion.

    study, dataset: where it comes from; what the dataset is called names the registered model.
    validation: the re-ranked validation mean of `objective`, by which versions are compared.
    test, test_mean: its own test metrics (``test/recall_at_1``) and their means over the seeds, reported, never compared.
    fingerprint, split_hash, protocol, crop, objective: what must agree for `validation` to be comparable.
    backbone, embedding_dim: its size.
    """

    study: str
    dataset: str
    validation: float
    objective: str
    fingerprint: str
    split_hash: str
    protocol: str
    crop: str
    backbone: str
    embedding_dim: int
    test: Mapping[str, float] = field(default_factory=dict)
    test_mean: Mapping[str, float] = field(default_factory=dict)

    @property
    def model(self) -> str:
        return model_name(self.dataset)

    @property
    def size_alias(self) -> str:
        """``<backbone>-<dim>``, in the characters that MLflow allows in an alias."""
        return re.sub(r"[^\w-]", "-", f"{self.backbone}-{self.embedding_dim}")


@dataclass(frozen=True)
class Registration:
    """What became of a candidate.

    version: its number. champion: whether the alias names it now. note: why it does, or why not, for people.
    """

    model: str
    version: int
    champion: bool
    note: str

    @property
    def uri(self) -> str:
        """What MLflow loads it by."""
        return f"models:/{self.model}@{CHAMPION}" if self.champion else f"models:/{self.model}/{self.version}"


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of a registered model, as its tags describe it. source: the URI of its pyfunc folder."""

    model: str
    version: int
    candidate: Candidate
    aliases: tuple[str, ...]
    run_id: str
    source: str
    created_at: float


def model_name(dataset: str) -> str:
    """The registered model of a dataset, by what that is called."""
    return f"see-tune.{dataset}"


def register_champion(client: MlflowClient, candidate: Candidate, *, model_folder: Path, run_id: str) -> Registration:
    """Register the model in `model_folder` as a version of its dataset's model, and settle the aliases.

    run_id: the run that trained it. Registering the same run again makes no second version.

    Raises:
        SeeTuneError: the folder holds no model.
        mlflow's and the network's errors, where the store is away or refuses.
    """
    _ensure_model(client, candidate.model)
    version = _version_of_run(client, candidate.model, run_id) or _create_version(client, candidate, model_folder, run_id)
    if candidate.protocol == "paper":
        return Registration(candidate.model, version, False, "chosen on the test classes (protocol: paper): never a champion")
    _settle(client, candidate.model, version, candidate.size_alias, lambda other: other.size_alias == candidate.size_alias)
    champion = _settle(client, candidate.model, version, CHAMPION, lambda _: True)
    return Registration(candidate.model, version, champion == version, _note(client, candidate, version, champion))


def read_versions(client: MlflowClient, dataset: str | None = None) -> tuple[RegisteredVersion, ...]:
    """The versions of one dataset's model, or of all datasets', oldest first; versions that others registered are left out.

    Raises:
        StudyError: no dataset is called so, neither one of see-tune's nor one whose model is registered.
    """
    models = _registered_models(client)
    if dataset is not None:
        models = [model for model in _known(dataset, models) if model == model_name(dataset)]
    return tuple(version for model in models for version in _versions(client, model).values())


def _registered_models(client: MlflowClient) -> list[str]:
    return [found.name for found in client.search_registered_models("name LIKE 'see-tune.%'", max_results=1000)]


def _known(dataset: str, models: list[str]) -> list[str]:
    """The registered models, where `dataset` may be among them."""
    if dataset not in DATASETS and model_name(dataset) not in models:
        titles = [model.removeprefix(model_name("")) for model in models]
        there = f"those that have: {', '.join(titles)}" if titles else "none has yet"
        raise StudyError(
            f"no dataset called {dataset!r} has a registered model here; {there}. A study's final phase registers one, under its "
            "dataset.title or the dataset's own name: see-tune run FILE"
        )
    return models


def promote(client: MlflowClient, dataset: str, version: int) -> RegisteredVersion:
    """Make `version` the champion by hand, whatever its validation mean and whether or not it is comparable.

    Raises:
        StudyError: there is no such dataset or version, or it was chosen on the test classes.
    """
    chosen = next((found for found in read_versions(client, dataset) if found.version == version), None)
    if chosen is None:
        raise StudyError(f"{model_name(dataset)} has no version {version}; see-tune best {dataset} lists what there is")
    if chosen.candidate.protocol == "paper":
        raise StudyError(
            f"version {version} of {chosen.model} was chosen on the test classes (protocol: paper) and can be no champion; "
            f"promote one of an honest study (see-tune best {dataset})"
        )
    client.set_registered_model_alias(chosen.model, CHAMPION, str(version))
    return _versions(client, chosen.model)[version]


def fetch_model_folder(client: MlflowClient, version: RegisteredVersion, into: Path) -> Path:
    """Copy the model folder (``model.safetensors``, ``model.json``) of a version below `into`; returns where it is."""
    into.mkdir(parents=True, exist_ok=True)
    return Path(client.download_artifacts(version.run_id, f"{_PYFUNC_FOLDER}/artifacts/{_MODEL_FOLDER}", str(into)))


def save_pyfunc(model_folder: Path, into: Path) -> Path:
    """Write the model of `model_folder` as an MLflow pyfunc below `into`; returns its folder.

    Raises:
        WeightsError: the folder holds no model.
    """
    import mlflow.pyfunc
    import numpy as np
    from mlflow.models import Model
    from mlflow.types import Schema, TensorSpec

    from see_tune.model_folder import load_model_folder

    staged, pyfunc = shutil.copytree(model_folder, into / _MODEL_FOLDER), into / _PYFUNC_FOLDER
    mlflow.pyfunc.save_model(
        str(pyfunc),
        python_model=str(_PYFUNC_CODE),
        artifacts={"model": str(staged)},
        input_example=[_example_image()],
        pip_requirements=[f"{name}=={installed_version(name)}" for name in _REQUIREMENTS],
    )
    description = Model.load(str(pyfunc))
    dim = load_model_folder(model_folder).spec.model.embedding_dim
    description.signature.outputs = Schema([TensorSpec(np.dtype(np.float32), (-1, dim))])  # MLflow infers no more than "any"
    description.save(str(pyfunc / "MLmodel"))
    return pyfunc


def _example_image() -> str:
    """A small grey PNG as a data: URI, which is both an input and valid JSON."""
    png = io.BytesIO()
    Image.new("RGB", (32, 32), (128, 128, 128)).save(png, "PNG")
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode("ascii")


def _ensure_model(client: MlflowClient, model: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(model)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _version_of_run(client: MlflowClient, model: str, run_id: str) -> int | None:
    numbers = [int(found.version) for found in client.search_model_versions(f"name = '{model}'") if found.run_id == run_id]
    return min(numbers, default=None)


def _create_version(client: MlflowClient, candidate: Candidate, model_folder: Path, run_id: str) -> int:
    with tempfile.TemporaryDirectory(dir=model_folder.parent) as folder:
        pyfunc = save_pyfunc(model_folder, Path(folder))
        client.log_artifacts(run_id, str(pyfunc), _PYFUNC_FOLDER)
    source = f"{client.get_run(run_id).info.artifact_uri}/{_PYFUNC_FOLDER}"
    created = client.create_model_version(candidate.model, source, run_id, tags=_tags(candidate))
    return int(created.version)


def _settle(client: MlflowClient, model: str, mine: int, alias: str, eligible: Callable[[Candidate], bool]) -> int:
    """Point `alias` at the best eligible version that is comparable with its holder (with `mine`, if it has none)."""
    while True:
        holder = _holder(client, model, alias)
        versions = {
            number: found.candidate
            for number, found in _versions(client, model).items()
            if found.candidate.protocol != "paper" and eligible(found.candidate)
        }
        if holder is not None and holder not in versions:
            return holder  # somebody's own version, put there by hand
        yardstick = versions[mine if holder is None else holder]
        comparable = [number for number, candidate in versions.items() if not _differences(candidate, yardstick)]
        best = max(comparable, key=lambda number: (versions[number].validation, -number))
        if best == holder:
            return best
        client.set_registered_model_alias(model, alias, str(best))


def _holder(client: MlflowClient, model: str, alias: str) -> int | None:
    number = client.get_registered_model(model).aliases.get(alias)
    return None if number is None else int(number)


def _differences(one: Candidate, other: Candidate) -> list[str]:
    return [name for name in _COMPARED if getattr(one, name) != getattr(other, name)]


def _note(client: MlflowClient, candidate: Candidate, version: int, champion: int) -> str:
    mine = f"validation mean {100 * candidate.validation:.1f}"
    if champion == version:
        return f"best {mine} of the comparable versions"
    other = _versions(client, candidate.model).get(champion)
    if other is None:
        return f"the champion, version {champion}, was put there by hand"
    if differing := _differences(candidate, other.candidate):
        return (
            f"not comparable with the champion, version {champion}: other {', '.join(differing)}; "
            f"see-tune promote {candidate.dataset} {version} makes it champion"
        )
    return f"{mine} is not above {100 * other.candidate.validation:.1f} of the champion, version {champion}"


def _versions(client: MlflowClient, model: str) -> dict[int, RegisteredVersion]:
    aliases: dict[int, list[str]] = {}
    for alias, number in client.get_registered_model(model).aliases.items():
        aliases.setdefault(int(number), []).append(alias)
    found = {int(version.version): version for version in client.search_model_versions(f"name = '{model}'")}
    return {
        number: RegisteredVersion(
            model=model,
            version=number,
            candidate=candidate,
            aliases=tuple(sorted(aliases.get(number, ()))),
            run_id=found[number].run_id,
            source=found[number].source,
            created_at=found[number].creation_timestamp / 1000,
        )
        for number in sorted(found)
        if (candidate := _candidate(found[number])) is not None
    }


def _tags(candidate: Candidate) -> dict[str, str]:
    """A candidate as tags, one a field and one a test metric, so that the registry's pages show them."""
    plain = ("study", "dataset", "objective", "fingerprint", "split_hash", "protocol", "crop", "backbone", "embedding_dim")
    tags = {name: str(getattr(candidate, name)) for name in plain} | {"validation": repr(float(candidate.validation))}
    tags |= {f"own.{key}": repr(float(value)) for key, value in candidate.test.items()}
    tags |= {f"mean.{key}": repr(float(value)) for key, value in candidate.test_mean.items()}
    return {_TAG_PREFIX + key: value for key, value in tags.items()}


def _candidate(version: ModelVersion) -> Candidate | None:
    """The candidate that a version's tags describe, or None for a version that somebody else registered."""
    tags = {key.removeprefix(_TAG_PREFIX): value for key, value in version.tags.items() if key.startswith(_TAG_PREFIX)}
    own = {key.removeprefix("own."): float(tags.pop(key)) for key in list(tags) if key.startswith("own.")}
    mean = {key.removeprefix("mean."): float(tags.pop(key)) for key in list(tags) if key.startswith("mean.")}
    try:
        validation, dim = float(tags.pop("validation")), int(tags.pop("embedding_dim"))
        return Candidate(**tags, validation=validation, embedding_dim=dim, test=own, test_mean=mean)
    except (KeyError, TypeError, ValueError):
        return None
