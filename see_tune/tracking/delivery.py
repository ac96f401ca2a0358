"""Telling MLflow: events of the spool -> runs, metrics, artifacts and registered models.

The only code that calls MLflow while a study runs, in the spool's thread. It is idempotent: the run of a lineage is found by
its tags or created, so whatever is told twice (a resumed study, a process killed between telling and noting that it had
told) makes no second run, and no second row of a metric, which MLflow knows by (key, value, timestamp, step).

A call costs about 15 ms whether it carries one metric or a thousand, so the events of a batch are gathered run by run and
logged together; the order within a run is kept.

What comes out of it decides what the spool does: a TrackingError is a refusal, anything else means that MLflow is away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from see_tune.addresses import LOCAL, find_tracking
from see_tune.errors import TrackingError
from see_tune.home import Home
from see_tune.tracking.connection import connect, reason
from see_tune.tracking.registry import Candidate, Registration, register_champion
from see_tune.tracking.spool import Event

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STUDY = "study"  # the parent run's lineage
# Without it MLflow's UI takes the experiment for one of language models, and opens it on a page without runs.
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
TAG_PREFIX = "see_tune."

_METRICS_A_CALL, _ENTRIES_A_CALL = 900, 50  # MLflow takes 1,000 metrics, 100 params and 100 tags, 1,000 of all
_REFUSED_CODES = {"BAD_REQUEST", "INVALID_PARAMETER_VALUE", "RESOURCE_ALREADY_EXISTS", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE"}
_REFUSED_STATUS = {400, 404, 409, 413, 422}


@dataclass
class _Batch:
    """What one call logs to one run. metrics: rows of key, value, Unix time in ms, step."""

    metrics: list[tuple[str, float, int, int]] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class Delivery:
    """Tells MLflow what a spool of one study holds.

    study_id: the spool's identity; with a lineage it names a run for ever, also on a server that other homes share.
    registrations: what became of the models that were registered, by lineage.
    """

    def __init__(self, home: Home, uri: str, *, experiment: str, study_id: str) -> None:
        self.registrations: dict[str, Registration] = {}
        self._home = home
        self._uri = find_tracking(uri)
        self._experiment = experiment
        self._study_id = study_id
        self._client: MlflowClient | None = None
        self._experiment_id: str | None = None
        self._run_ids: dict[str, str] = {}

    def __call__(self, events: Sequence[Event]) -> None:
        """Tell MLflow these events, oldest first.

        Raises:
            TrackingError: MLflow refuses one of them, and would again.
            ConnectionError: MLflow is away; the same events can be told again later.
        """
        client = self._connected()
        try:
            self._tell(client, events)
        except Exception as error:
            self._run_ids.clear()  # a run may have been deleted meanwhile
            if _is_away(error):
                raise ConnectionError(f"{self._uri}: {reason(error)}") from error
            raise TrackingError(f"MLflow at {self._uri} refused {events[0].kind} of {self._experiment}: {error}") from error

    def _connected(self) -> MlflowClient:
        if self._client is None:
            try:
                self._client = connect(self._home, self._uri)
            except TrackingError as error:
                raise ConnectionError(reason(error)) from error
        return self._client

    def _tell(self, client: MlflowClient, events: Sequence[Event]) -> None:
        batches: dict[str, _Batch] = {}
        for event in events:
            lineage = event.body["lineage"]
            batch = batches.setdefault(lineage, _Batch())
            if event.kind == "metrics":
                batch.metrics += [(key, value, timestamp, step) for key, value, timestamp, step in event.body["rows"]]
            elif event.kind == "tags":
                batch.tags |= event.body["tags"]
            else:
                self._log(client, lineage, batches.pop(lineage))
                if event.kind == "start":
                    batches[lineage] = self._start(client, event.body)
                elif event.kind == "end":
                    client.set_terminated(self._run_id(client, lineage), event.body["status"], event.body["time"])
                elif event.kind == "artifact":
                    self._log_artifact(client, lineage, Path(event.body["path"]), event.body["folder"])
                else:
                    self._register(client, lineage, Path(event.body["folder"]), event.body["candidate"])
        for lineage, batch in batches.items():
            self._log(client, lineage, batch)

    def _start(self, client: MlflowClient, body: Mapping[str, Any]) -> _Batch:
        """Find or create a run; returns the params and tags it has yet to get."""
        run, tags = self._find(client, body["lineage"]), body["tags"]
        if run is None:
            parent = {"mlflow.parentRunId": self._run_id(client, body["parent"])} if body["parent"] else {}
            run = client.create_run(self._experiment_of(client), body["time"], {**tags, **parent}, body["name"])
            tags = {}
        elif run.info.status != "RUNNING":
            client.update_run(run.info.run_id, status="RUNNING")
        self._run_ids[body["lineage"]] = run.info.run_id
        _log_dataset(client, run.info.run_id, body["tags"])
        return _Batch(params={key: value for key, value in body["params"].items() if key not in run.data.params}, tags=dict(tags))

    def _log(self, client: MlflowClient, lineage: str, batch: _Batch) -> None:
        from mlflow.entities import Metric, Param, RunTag

        metrics = [Metric(*row) for row in batch.metrics]
        params = [Param(*entry) for entry in batch.params.items()]
        tags = [RunTag(*entry) for entry in batch.tags.items()]
        while metrics or params or tags:
            client.log_batch(
                self._run_id(client, lineage), metrics[:_METRICS_A_CALL], params[:_ENTRIES_A_CALL], tags[:_ENTRIES_A_CALL]
            )
            metrics, params, tags = metrics[_METRICS_A_CALL:], params[_ENTRIES_A_CALL:], tags[_ENTRIES_A_CALL:]

    def _log_artifact(self, client: MlflowClient, lineage: str, path: Path, folder: str | None) -> None:
        run_id = self._run_id(client, lineage)
        if path.is_dir():
            client.log_artifacts(run_id, str(path), folder)
        else:
            client.log_artifact(run_id, str(path), folder)

    def _register(self, client: MlflowClient, lineage: str, folder: Path, candidate: Mapping[str, Any]) -> None:
        run_id = self._run_id(client, lineage)
        self.registrations[lineage] = register_champion(client, Candidate(**candidate), model_folder=folder, run_id=run_id)

    def _run_id(self, client: MlflowClient, lineage: str) -> str:
        if lineage not in self._run_ids:
            run = self._find(client, lineage)
            if run is None:
                raise TrackingError(f"MLflow has no run {lineage} of this study: it was deleted, or its start was refused")
            self._run_ids[lineage] = run.info.run_id
        return self._run_ids[lineage]

    def _find(self, client: MlflowClient, lineage: str) -> Run | None:
        query = f"tags.`{TAG_PREFIX}study_id` = '{self._study_id}' AND tags.`{TAG_PREFIX}lineage` = '{lineage}'"
        found = client.search_runs([self._experiment_of(client)], query, max_results=1)
        return found[0] if found else None

    def _experiment_of(self, client: MlflowClient) -> str:
        """The id of the study's experiment: created where it is not there, restored where someone deleted it."""
        if self._experiment_id is None:
            found = client.get_experiment_by_name(self._experiment)
            if found is None:
                self._experiment_id = self._create_experiment(client)
            else:
                self._experiment_id = found.experiment_id
                if found.lifecycle_stage == "deleted":
                    client.restore_experiment(found.experiment_id)
        return self._experiment_id

    def _create_experiment(self, client: MlflowClient) -> str:
        from mlflow.exceptions import MlflowException

        artifacts = (self._home.mlflow_artifacts / self._experiment).as_uri() if self._uri == LOCAL else None
        try:
            return str(client.create_experiment(self._experiment, artifacts, tags=dict(_EXPERIMENT_TAGS)))
        except MlflowException as error:
            found = client.get_experiment_by_name(self._experiment)
            if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
                raise
            return str(found.experiment_id)  # another study of the same dataset was faster


def _log_dataset(client: MlflowClient, run_id: str, tags: Mapping[str, str]) -> None:
    """What the UI shows in its column "Dataset": the name, and the fingerprint by which runs can be compared."""
    from mlflow.entities import Dataset, DatasetInput

    name, fingerprint = tags.get(f"{TAG_PREFIX}dataset"), tags.get(f"{TAG_PREFIX}fingerprint")
    if name and fingerprint:
        client.log_inputs(run_id, [DatasetInput(Dataset(name, fingerprint, "see-tune", "{}"))])


def _is_away(error: Exception) -> bool:
    """Whether `error` means that MLflow cannot be reached or does not work now, rather than that it refused."""
    from mlflow.exceptions import MlflowException
    from requests import HTTPError, RequestException
    from sqlalchemy.exc import SQLAlchemyError

    if isinstance(error, MlflowException):
        return error.error_code not in _REFUSED_CODES
    if isinstance(error, HTTPError) and error.response is not None:
        return error.response.status_code not in _REFUSED_STATUS
    return isinstance(error, (OSError, RequestException, SQLAlchemyError)) and not isinstance(error, FileNotFoundError)
