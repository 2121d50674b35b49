"""MLflow: a database in RUN/mlflow, or wherever MLFLOW_TRACKING_URI says."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import alembic  # noqa: F401  mlflow-skinny needs both to log to a database
import sqlalchemy  # noqa: F401
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from undrift.runs.layout import RunFile
from undrift.runs.trackers import TrackedTrial, Values

TRIAL, ROUND, FAILURE = "undrift.trial", "undrift.round", "undrift.failure"
"""tags of a run: id of the trial, last round logged, failure"""


class MLflow:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / RunFile.MLFLOW
        self._client: MlflowClient | None = None
        self._run: str | None = None
        self._logged = 0

    def begin(self, trial: TrackedTrial, before: Values) -> None:
        self.close()
        client = self._client = self._client or self._connect()
        experiment = self._experiment(client, f"undrift {trial.run}")
        runs = client.search_runs(
            [experiment],
            f"tags.`{TRIAL}` = '{trial.id}'",
            order_by=["start_time DESC"],
            max_results=1,
        )
        # MLflow keeps duplicates of a step, so rounds that it has are not logged again.
        self._logged = int(runs[0].data.tags.get(ROUND, 0)) if runs else 0
        if runs and (before or not self._logged):
            self._run = runs[0].info.run_id
            client.update_run(self._run, status="RUNNING")
        else:
            made = client.create_run(experiment, run_name=trial.name, tags={TRIAL: trial.id})
            self._run, self._logged = made.info.run_id, 0
            params = [Param(key, str(value)) for key, value in trial.facts.items()]
            client.log_batch(self._run, params=params)
        for t, values in before.items():
            self.row(t, values)

    def _connect(self) -> MlflowClient:
        if os.environ.get("MLFLOW_TRACKING_URI"):
            return MlflowClient()
        self._folder.mkdir(parents=True, exist_ok=True)
        return MlflowClient(f"sqlite:///{(self._folder / 'mlflow.db').resolve().as_posix()}")

    def _experiment(self, client: MlflowClient, name: str) -> str:
        known = client.get_experiment_by_name(name)
        if known is not None:
            return str(known.experiment_id)
        own = not os.environ.get("MLFLOW_TRACKING_URI")
        place = (self._folder / "artifacts").resolve().as_uri() if own else None
        return str(client.create_experiment(name, artifact_location=place))

    def row(self, t: int, values: Mapping[str, float]) -> None:
        if self._client is not None and self._run is not None and t > self._logged:
            now = int(time.time() * 1000)
            metrics = [Metric(key, value, now, t) for key, value in values.items()]
            self._client.log_batch(self._run, metrics=metrics, tags=[RunTag(ROUND, str(t))])
            self._logged = t

    def end(self, failure: str | None) -> None:
        if self._client is not None and self._run is not None and failure:
            self._client.set_tag(self._run, FAILURE, failure)
        self._stop("FAILED" if failure else "FINISHED")

    def close(self) -> None:
        self._stop("KILLED")

    def _stop(self, status: str) -> None:
        if self._client is not None and self._run is not None:
            run, self._run = self._run, None
            self._client.set_terminated(run, status)


make = MLflow
