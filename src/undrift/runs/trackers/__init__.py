"""Trackers: metrics as they come, in TensorBoard, MLflow or W&B.

    tracking = Trackers(["tensorboard"], folder, experiment.hash, experiment.resolved(), print)
    tracking.begin("AdaBest", "AdaBest(mu=0.02)", seed=0, after=0)
    tracking.row({"round": 5, "accuracy": 0.7})
    tracking.end(None)
    tracking.close()

Everything goes into the run directory and nothing over the network, unless the environment says so.
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
"""all trackers, which are also the names of the extras that they need"""

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # training waits while MLflow tries again
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "WANDB_ERROR_REPORTING": "false",
}
"""what is set where the environment does not: both libraries report to their makers otherwise"""


@dataclass(frozen=True)
class TrackedTrial:
    """One algorithm on one seed, which trackers show as one run.

    run       the experiment's hash
    settings  the experiment in plain text and numbers
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
"""round → what was measured in it, in order"""


class Tracker(Protocol):
    """Writes one trial after another. Nothing is written before the first begins."""

    def begin(self, trial: TrackedTrial, before: Values) -> None:
        """A trial begins, or goes on after what was measured in earlier sessions."""

    def row(self, t: int, values: Mapping[str, float]) -> None:
        """What was measured in round t."""

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
    """Several trackers, or none, as one that never fails.

    A tracker that raises an error is off from there on, and `warn` is given one line that says so.
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
        """A trial begins, or goes on after a round, up to which metrics.jsonl has its rows."""
        trial = TrackedTrial(self._run, self._settings, label, algorithm, seed)
        self._tell(lambda one: one.begin(trial, self._before(trial, after)))

    def _before(self, trial: TrackedTrial, after: int) -> Values:
        path = self._folder / RunFile.METRICS
        text = path.read_bytes() if path.exists() else b""
        rows = (row for _, row in read_rows(text, {(trial.algorithm, trial.seed)}))
        return {row["round"]: numbers(row) for row in rows if row and row["round"] <= after}

    def row(self, row: Mapping[str, Any]) -> None:
        """A row of metrics, as it stands in metrics.jsonl."""
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
            except Exception as error:  # whatever a library may raise: training goes on
                del self._on[name]
                reason = " ".join(str(error).split()) or type(error).__name__
                shown = reason if len(reason) <= 200 else f"{reason[:197]}..."
                self._warn(f"{name} failed and is off from here on, the run is not: {shown}")
                with suppress(Exception):
                    one.close()


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """What trackers draw of a row: finite numbers; of a list its smallest, mean and largest."""
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
