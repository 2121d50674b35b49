"""Trackers: log metrics to TensorBoard, MLflow or W&B during a run.

    tracking = Trackers(["tensorboard"], folder, experiment.hash, experiment.resolved(), print)
    tracking.begin("AdaBest", "AdaBest(mu=0.02)", seed=0, after=0)
    tracking.row({"round": 5, "accuracy": 0.7})
    tracking.end(None)
    tracking.close()

Everything is written to the run directory and nothing is sent over the network, unless environment
variables of the trackers say so.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from undrift.config import UndriftError, unknown
from undrift.measure.quantities import KEYS
from undrift.runs.layout import RunFile
from undrift.runs.rows import read_rows
from undrift.system.extras import lacking

NAMES = ("tensorboard", "mlflow", "wandb")
"""all trackers; the extras that they need have the same names"""

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # training waits for retries
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "WANDB_ERROR_REPORTING": "false",
}
"""defaults of environment variables, against telemetry and long waits"""


@dataclass(frozen=True)
class TrackedTrial:
    """A trial, which trackers show as one run.

    run       hash of the experiment
    settings  settings of the experiment as texts and numbers
    """

    run: str
    settings: Mapping[str, Any]
    label: str
    algorithm: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.label}, seed {self.seed}"

    @property
    def id(self) -> str:
        """The same in every session of the same experiment."""
        text = json.dumps([self.run, self.algorithm, self.seed])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def facts(self) -> dict[str, Any]:
        own = {"run": self.run, "algorithm": self.algorithm, "label": self.label, "seed": self.seed}
        return own | dict(self.settings)


Values = Mapping[int, Mapping[str, float]]
"""round → its metrics, in order"""


class Tracker(Protocol):
    """Logs one trial after another. Nothing is written before the first begins."""

    def begin(self, trial: TrackedTrial, before: Values) -> None:
        """Begin a trial, or resume it after the rounds that earlier sessions measured."""

    def row(self, t: int, values: Mapping[str, float]) -> None:
        """Log the metrics of round t."""

    def end(self, failure: str | None) -> None:
        """The trial is done; a failure is why it could not go on."""

    def close(self) -> None:
        """Let go of everything; a trial that has not ended was interrupted."""


def tracker(name: str, folder: Path) -> Tracker:
    """The tracker of this name, writing into a run directory."""
    if name not in NAMES:
        raise UndriftError(unknown("tracker", name, NAMES))
    for key, value in _QUIET.items():
        os.environ.setdefault(key, value)
    try:
        module = import_module(f"undrift.runs.trackers.{name}")
        made: Tracker = module.make(Path(folder))
    except ImportError as error:
        raise lacking(error.name or "a package", name, f"tracking with {name}") from None
    return made


class Trackers:
    """Any number of trackers as one that never fails.

    A tracker that raises an error is switched off, and `warn` is called with one line about it.
    """

    def __init__(
        self,
        names: Iterable[str],
        folder: Path,
        run: str,
        settings: Mapping[str, Any],
        warn: Callable[[str], object],
    ) -> None:
        self._on = {name: tracker(name, Path(folder)) for name in names}
        self._folder, self._run, self._settings, self._warn = folder, run, settings, warn

    def begin(self, label: str, algorithm: str, seed: int, after: int = 0) -> None:
        """Begin a trial, or resume it after a round, up to which metrics.jsonl has its rows."""
        trial = TrackedTrial(self._run, self._settings, label, algorithm, seed)
        self._tell(lambda one: one.begin(trial, self._before(trial, after)))

    def _before(self, trial: TrackedTrial, after: int) -> Values:
        path = self._folder / RunFile.METRICS
        text = path.read_bytes() if path.exists() else b""
        rows = (row for _, row in read_rows(text, {(trial.algorithm, trial.seed)}))
        return {row["round"]: numbers(row) for row in rows if row and row["round"] <= after}

    def row(self, row: Mapping[str, Any]) -> None:
        """Log a row of metrics.jsonl."""
        self._tell(lambda one: one.row(row["round"], numbers(row)))

    def end(self, failure: str | None = None) -> None:
        """The trial is done; a failure is why it could not go on."""
        self._tell(lambda one: one.end(failure))

    def close(self) -> None:
        """Let go of everything; a trial that has not ended was interrupted."""
        self._tell(lambda one: one.close())

    def _tell(self, news: Callable[[Tracker], None]) -> None:
        for name, one in list(self._on.items()):
            try:
                news(one)
            except Exception as error:  # a tracker must not stop the training
                del self._on[name]
                reason = " ".join(str(error).split()) or type(error).__name__
                shown = reason if len(reason) <= 200 else f"{reason[:197]}..."
                self._warn(f"{name} failed and is switched off, the run continues: {shown}")
                with suppress(Exception):
                    one.close()


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row; of a list its minimum, mean and maximum."""
    found = {}
    for key, value in row.items():
        if isinstance(value, list | tuple):
            values = [float(one) for one in value if _finite(one)]
            if values:
                found[f"{key}/min"] = min(values)
                found[f"{key}/mean"] = math.fsum(values) / len(values)
                found[f"{key}/max"] = max(values)
        elif _finite(value) and key not in KEYS:
            found[key] = float(value)
    return found


def _finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)
