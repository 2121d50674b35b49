"""Run directories: an experiment's settings and results as plain files, which survive anything."""

from __future__ import annotations

import io
import json
import math
import os
import platform
from datetime import UTC, datetime
from importlib.util import find_spec
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
from undrift.lock import Lock, replace_file, writing
from undrift.names import labels
from undrift.task import Task

Row = dict[str, Any]


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
        self._metrics = self.folder / "metrics.jsonl"
        with writing(self._metrics):
            self._metrics.touch()
            text = self._metrics.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            os.truncate(self._metrics, len(whole))  # without a row that was torn
        self._rows = [self._parsed(line) for line in whole.splitlines()]
        with writing(self._metrics):
            self._file = self._metrics.open("ab")

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the rows as columns and let go of the folder."""
        try:
            self._file.close()
            self._write_columns()
        finally:
            self._lock.close()

    def begin(self, **session: Any) -> None:
        """Note what this session runs on."""
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

    def rows(self, algorithm: str, seed: int) -> list[Row]:
        """The rows of a leg."""
        return [row for row in self._rows if _place(row) == (algorithm, seed)]

    def add(self, row: Row) -> Row:
        """Write one row of metrics; returns it as written, without NaN and infinities."""
        row = {"algorithm": row["algorithm"], "label": self.labels[row["algorithm"]]} | {
            key: _plain(value) for key, value in row.items()
        }
        with writing(self._metrics):
            self._file.write(json.dumps(row).encode() + b"\n")
            self._file.flush()
        self._rows.append(row)
        return row

    def sync(self) -> None:
        """Wait until all rows are on the disk."""
        with writing(self._metrics):
            os.fsync(self._file.fileno())

    def trim(self, algorithm: str, seed: int, last: int) -> None:
        """Forget what a leg measured after a round; it will be measured again."""
        kept = [r for r in self._rows if _place(r) != (algorithm, seed) or r["round"] <= last]
        if len(kept) < len(self._rows):
            self._rows = kept
            self._file.close()
            replace_file(self._metrics, "".join(json.dumps(row) + "\n" for row in kept).encode())
            self._file = self._metrics.open("ab")

    def end(self, algorithm: str, seed: int, last: int, reason: str) -> None:
        """Note why a leg ended before its last round."""
        self.sync()
        place = {"algorithm": algorithm, "seed": seed, "round": last}
        self.verdicts.append(place | {"reason": reason})
        self._write("verdicts.json", self.verdicts)

    def log(self, text: str) -> None:
        """Say what happened, with the time."""
        with writing(self.folder / "run.log"), (self.folder / "run.log").open("a") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")

    def _parsed(self, line: bytes) -> Row:
        try:
            row: Row = json.loads(line)
            _place(row)
        except (ValueError, KeyError, TypeError):
            raise UndriftError(
                f"{self._metrics} holds a line that is no row, {line[:60]!r}; remove it, and what "
                "is missing then is computed again"
            ) from None
        return row

    def _write_columns(self) -> None:
        """metrics.parquet, for whoever reads it with pandas, polars or duckdb."""
        if not self._rows or find_spec("polars") is None:
            return
        import polars

        table = polars.from_dicts(self._rows, infer_schema_length=None)
        run = polars.lit(self.experiment.hash).alias("run")
        empty = polars.selectors.by_dtype(polars.Null).cast(polars.Float64)
        table = table.select(run, polars.all()).with_columns(empty)
        table.write_parquet(columns := io.BytesIO())
        replace_file(self.folder / "metrics.parquet", columns.getvalue())

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


def _place(row: Row) -> tuple[str, int]:
    return row["algorithm"], row["seed"]


def _plain(value: Any) -> Any:
    """A value for JSON, null for what is not finite."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
