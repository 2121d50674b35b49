"""Run directories: an experiment's settings and results as plain files, which survive anything."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undrift import __version__
from undrift.config import UndriftError
from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.experiment import Experiment
from undrift.identity import facts_of, refuse_another
from undrift.interrupt import uninterrupted
from undrift.lock import Lock, replace_file, writing
from undrift.metrics_file import MetricsFile, Place, Row
from undrift.names import labels
from undrift.task import Task


class RunFolder:
    """A run directory, new or to be gone on with, which no other process may write to.

    experiment.json   settings and facts           experiment.toml   settings, to run them again
    metrics.jsonl     one row an evaluation        metrics.parquet   the same, as columns
    verdicts.json     legs that ended early        partition.json    who holds what, first seed
    environment.json  what each session ran on     run.log           what happened when
    checkpoints/LEG   the last states of a leg     models/LEG.safetensors   what it ended with
    """

    def __init__(
        self,
        folder: Path,
        experiment: Experiment,
        task: Task,
        data: FederatedData,
        command: str = "",
    ) -> None:
        self.folder, self.experiment = folder, experiment
        self.labels = dict(
            zip(map(repr, experiment.algorithms), labels(experiment.algorithms), strict=True)
        )
        self.facts = facts_of(experiment, task, data) | {
            "name": folder.resolve().name,
            "command": command,
        }
        refuse_another(folder, self.facts)
        self._lock = Lock(folder)
        try:
            refuse_another(folder, self.facts)  # which another process may have filled meanwhile
            self._open(task, data)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, task: Task, data: FederatedData) -> None:
        self._read("experiment.json", self.facts)  # first, as it makes the folder a run
        if not (self.folder / "experiment.toml").exists():
            replace_file(self.folder / "experiment.toml", self.experiment.to_toml().encode())
        counts = {"label_counts": data.label_counts.tolist()} if task.classifies else {}
        self._read("partition.json", counts)
        self.verdicts: list[Row] = self._read("verdicts.json", [])
        self.sessions: list[Row] = self._read("environment.json", [])
        self.metrics = MetricsFile(self.folder)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with uninterrupted():
            try:
                self.metrics.close()
                self.log("session ends" if kind is None else f"session ends by {kind.__name__}")
                self.metrics.write_columns(self.experiment.hash)
            except UndriftError:
                if kind is None or not issubclass(kind, UndriftError):  # the first one tells more
                    raise
            finally:
                self._lock.close()

    def begin(self, **session: Any) -> str | None:
        """Note what this session runs on; returns what it should warn of, if anything."""
        here = {
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "undrift": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "platform": platform.platform(),
            "cores": os.cpu_count(),
        }
        self.sessions.append(here | session)
        self._write("environment.json", self.sessions)
        self.log(f"session {len(self.sessions)} begins: {session.get('engine')}")
        first, versions = self.sessions[0], ("undrift", "torch", "numpy")
        other = [f"{name} {first.get(name)}" for name in versions if first.get(name) != here[name]]
        if not other:
            return None
        return f"begun with {', '.join(other)}: bits may differ from those of an undisturbed run"

    def add(self, row: Row) -> Row:
        """Write one row of metrics, with the algorithm's label; returns it as written."""
        name = row["algorithm"]
        return self.metrics.add({"algorithm": name, "label": self.labels[name]} | row)

    def end(self, place: Place, last: int, reason: str) -> None:
        """Note why a leg ended before its last round."""
        self.metrics.sync()
        here = {"algorithm": place[0], "seed": place[1], "round": last}
        self.verdicts.append(here | {"reason": reason})
        self._write("verdicts.json", self.verdicts)

    def log(self, text: str) -> None:
        """Say what happened, with the time."""
        with (
            writing(self.folder / "run.log"),
            (self.folder / "run.log").open("a", encoding="utf-8") as file,
        ):
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")

    def _read(self, name: str, default: Any) -> Any:
        """What a file holds; one that is not there yet is written."""
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._write(name, default)
            return default
        except ValueError as error:
            raise UndriftError(f"{path} is damaged ({error}); bring it back from a copy") from None

    def _write(self, name: str, content: Any) -> None:
        replace_file(self.folder / name, (json.dumps(content, indent=1) + "\n").encode())


def leg_name(experiment: Experiment, made: Algorithm, seed: int) -> str:
    """The name of a leg, fit for files."""
    place = experiment.algorithms.index(made)
    label = labels(experiment.algorithms)[place]
    plain = "".join(sign if sign.isalnum() else "_" for sign in label).strip("_")
    return f"{place}-{plain}-seed{seed}"
