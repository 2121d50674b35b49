"""Run directories: an experiment's settings and results as plain files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TextIO

from undrift import __version__
from undrift.config import UndriftError
from undrift.data.federated import FederatedData
from undrift.experiment import Experiment
from undrift.names import labels
from undrift.task import Task


class RunWriter:
    """Writes a run directory as an experiment goes along.

    experiment.json  settings              metrics.jsonl   one row an evaluation
    partition.json   who holds what        verdicts.json   runs that ended early, and why
    """

    def __init__(
        self, folder: Path, experiment: Experiment, command: str, task: Task, data: FederatedData
    ) -> None:
        self.folder = folder
        self.experiment = experiment
        self.labels = labels(experiment.algorithms)
        self.verdicts: list[dict[str, Any]] = []
        facts = experiment.resolved() | {
            "name": folder.name,
            "hash": experiment.hash,
            "version": __version__,
            "command": command,
            "algorithms": [
                {"name": repr(algorithm), "label": label}
                for algorithm, label in zip(experiment.algorithms, self.labels, strict=True)
            ],
            "clients": len(data),
            "train_samples": int(data.sizes.sum()),
            "test_samples": len(data.test_targets),
            "classes": data.label_counts.shape[1] if task.classifies else None,
            "parameters": len(task.x0),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._refuse_another()
            self._write("experiment.json", facts)
            counts = {"label_counts": data.label_counts.tolist()} if task.classifies else {}
            self._write("partition.json", counts)
            self._write("verdicts.json", [])
            self.metrics: TextIO = (folder / "metrics.jsonl").open("w", encoding="utf-8")
        except OSError as error:
            raise UndriftError(
                f"cannot write to {folder}: {error.strerror}; choose another folder with --out"
            ) from None

    def _refuse_another(self) -> None:
        """Only an empty folder or one with this very experiment may be written to."""
        if not any(self.folder.iterdir()):
            return
        try:
            found = json.loads((self.folder / "experiment.json").read_text())["hash"]
        except (OSError, ValueError, KeyError, TypeError):
            found = None
        if found != self.experiment.hash:
            raise UndriftError(
                f"{self.folder} holds something else already; choose another folder with --out"
            )

    def _write(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write one row of metrics; returns it as written."""
        verdict = row.pop("verdict", None)
        names = [repr(algorithm) for algorithm in self.experiment.algorithms]
        label = self.labels[names.index(row["algorithm"])]
        row = {"algorithm": row["algorithm"], "label": label} | {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        self.metrics.write(json.dumps(row) + "\n")
        self.metrics.flush()
        if verdict:
            place = {key: row[key] for key in ("algorithm", "seed", "round")}
            self.verdicts.append(place | {"reason": verdict})
            self._write("verdicts.json", self.verdicts)
        return row

    def close(self) -> None:
        """Finish the files."""
        self.metrics.close()
