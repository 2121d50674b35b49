"""A run directory, opened for writing: settings, rows, failures and sessions as plain files."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from undrift import arithmetic
from undrift.config import UndriftError, own
from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.data.text.words import Windows
from undrift.experiment.experiment import REPORT_ONLY, Experiment
from undrift.experiment.registry import label, labels
from undrift.runs.checksums import Checksums
from undrift.runs.entries import Row, TrialKey, is_failure, is_session
from undrift.runs.identity import facts_of, refuse_another
from undrift.runs.layout import RunFile, trial_named
from undrift.runs.own_code import remember
from undrift.runs.rows import MetricsFile
from undrift.system.files import Damaged, replace_file, writing
from undrift.system.lock import Lock
from undrift.system.signals import uninterrupted
from undrift.training.task import Task

LONGEST, SHORTENED = 234, 60
"""Longest name of a trial in bytes, so that `.NAME.safetensors.partial` fits into the 255 that file
systems allow; and how much of the algorithm's label is kept in a name that would be longer."""


class RunFolder:
    """A run directory, new or resumed, locked against other writers; `RunFile` lists its files.

    notes  damage that was found on opening, and is repaired by running that part again
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
        self.trials = {(name, seed) for name in self.labels for seed in experiment.seeds}
        self.notes: list[str] = []
        self.facts = facts_of(experiment, task, data) | {
            "name": folder.resolve().name,
            "command": command,
        }
        refuse_another(folder, self.facts)
        self._lock = Lock(folder)
        try:
            refuse_another(folder, self.facts)  # again: it was not locked at the first check
            self._open(task, data)
            remember(self.facts.get("code", {}))
        except BaseException:
            self._lock.close()
            raise

    def _open(self, task: Task, data: FederatedData) -> None:
        self.sums = Checksums(self.folder)
        if self.sums.damage:
            self.notes.append(f"{self.sums.damage}; checksums are computed again")
        self._settings()
        known = task.classifies and len(data.order) > 0  # a deployment's samples are elsewhere
        counts: Row = {"label_counts": data.label_counts.tolist()} if known else {}
        if known and not isinstance(data.transform, Windows):  # letters are not classes
            counts["test_label_counts"] = data.test_label_counts.tolist()
        for whose, names in (("clients", data.client_names), ("classes", data.class_names)):
            counts |= {} if names is None else {whose: list(names)}
        self._read(RunFile.PARTITION, counts)
        self.sessions: list[Row] = self._read(RunFile.ENVIRONMENT, [])
        if not (isinstance(self.sessions, list) and all(map(is_session, self.sessions))):
            raise self._damaged(RunFile.ENVIRONMENT, "must be a list of sessions")
        self.failures = self._failures()
        self.metrics = MetricsFile(self.folder, self.trials, self._fitted)
        try:
            self._compare()
        except BaseException:
            self.metrics.close()
            raise

    def _settings(self) -> None:
        """Write the settings, if they are new, extended, or if those of the report have changed.

        The file with the settings that count is written last: a kill before that leaves the run as
        it was, and the other file, which then has no checksum, is written again.
        """
        found = self._read(RunFile.EXPERIMENT, self.facts)  # first: it marks the folder as a run
        wanted = {key: self.facts[key] for key in REPORT_ONLY}
        if found["hash"] != self.facts["hash"]:
            commands = (found.get("command"), self.facts["command"])
            wanted = self.facts | {"command": " && ".join(filter(None, commands))}
        another = any(found.get(key) != value for key, value in wanted.items())
        toml, text = self.folder / RunFile.SETTINGS, self.experiment.to_toml().encode()
        with writing(toml):
            known = toml.exists() and (self.sums.covers(toml) or toml.read_bytes() == text)
        if known and not another:
            return
        self.sums.files.pop(RunFile.SETTINGS.filename, None)
        if another:
            self.sums.files.pop(RunFile.EXPERIMENT.filename, None)
        self.sums.write()  # before the files, or a crash in between would look like damage
        replace_file(toml, text)
        if another:
            self._write(RunFile.EXPERIMENT, found | wanted)

    def _compare(self) -> None:
        """Remove the rows of trials whose checksum is wrong, and add missing checksums of files."""
        for place, expected in list(self.sums.rows.items()):
            if self.metrics.tally.sums(place, expected["last"]) != expected:
                self.metrics.remove(place)
                del self.sums.rows[place]
        self.notes += self.metrics.notes
        self._fit_rows()
        for name in (RunFile.EXPERIMENT, RunFile.SETTINGS, RunFile.PARTITION):
            path = self.folder / name
            if not self.sums.covers(path):
                with writing(path):
                    self.sums.cover(path, path.read_bytes())
        self.sums.write()
        for note in self.notes:
            self.log(note)

    def _fitted(self, row: Row) -> Row | None:
        """A row as it is in this experiment: None if it is not due, as that of a former last round.

        The label of an algorithm becomes longer when another one of its kind joins it.
        """
        last = self.failure((row["algorithm"], row["seed"])) or {"round": self.experiment.rounds}
        if not self.experiment.evaluates(row["round"]) and row["round"] != last["round"]:
            return None
        return row | {"label": self.labels[row["algorithm"]]}

    def _fit_rows(self) -> None:
        """Change the rows that an extension of the run has made differ from `_fitted`."""
        if places := self.metrics.unfit:
            covered = [
                (place, self.sums.rows.pop(place)) for place in places & self.sums.rows.keys()
            ]
            self.sums.write()  # before the rows, or a crash in between would look like damage
            self.metrics.fit()
            for place, old in covered:
                self.sums.rows[place] = self.metrics.tally.sums(place, old["last"])

    def _failures(self) -> list[Row]:
        """The undamaged failures; a trial that has lost its failure runs until it fails again."""
        try:
            found = self._read(RunFile.FAILURES, [])
        except Damaged as error:
            found = str(error)
        entries = found if isinstance(found, list) else []
        kept = [
            one
            for one in entries
            if is_failure(one, self.trials, self.experiment.rounds) and self.sums.knows(one)
        ]
        lost = self.sums.failures.keys() - {(one["algorithm"], one["seed"]) for one in kept}
        if kept != found or lost:
            path = self.folder / RunFile.FAILURES
            self.notes.append(f"{path} is damaged; its trials resume from their last checkpoints")
            self._write(RunFile.FAILURES, kept)
        return kept

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with uninterrupted():
            try:
                self.metrics.close()
                self.log("session ends" if kind is None else f"session ends by {kind.__name__}")
                if note := self.metrics.write_columns(self.experiment.hash):
                    self.log(note)
            except UndriftError:
                if kind is None or not issubclass(kind, UndriftError):  # keep the first error
                    raise
            finally:
                self._lock.close()

    def begin(self, **session: Any) -> str | None:
        """Add this session to environment.json; returns a warning if its rounding may differ."""
        here: dict[str, Any] = {
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cores": os.cpu_count(),
            "hash": self.experiment.hash,
        }
        if "code" in self.facts:
            here["code"] = {place: str(own.path(place)) for place in self.facts["code"]}
        engine = session.get("rounding", "") + (", mixed machines" if session.get("mixed") else "")
        bits = arithmetic.facts() | {"engine": engine}
        self.sessions.append(here | session | {"arithmetic": bits})
        self._write(RunFile.ENVIRONMENT, self.sessions)
        self.log(f"session {len(self.sessions)} begins: {session.get('engine')}")
        return arithmetic.change(self.sessions[0].get("arithmetic", {}), bits)

    def add(self, row: Row) -> Row:
        """Write one row of metrics, with the algorithm's label; returns it as written."""
        name = row["algorithm"]
        return self.metrics.add({"algorithm": name, "label": self.labels[name]} | row)

    def end(self, place: TrialKey, last: int, reason: str) -> None:
        """Record why a trial ended before its last round."""
        self.metrics.sync()  # first: a failure marks its trial as done, so no row may be lost
        here = {"algorithm": place[0], "seed": place[1], "round": last, "reason": reason}
        self.failures.append(here)
        self._write(RunFile.FAILURES, self.failures)
        self.sums.cover_failure(here)
        self.seal(place, last)

    def failure(self, place: TrialKey) -> Row | None:
        """Why a trial ended early, if it did."""
        return next((v for v in self.failures if (v["algorithm"], v["seed"]) == place), None)

    def seal(self, place: TrialKey, last: int) -> None:
        """Write the checksum of a trial's rows up to a round; they must be synced already."""
        self.sums.rows[place] = self.metrics.tally.sums(place, last)
        self.sums.write()

    def rewind(self, place: TrialKey, last: int, model: Path) -> None:
        """Remove what a trial has after a round, from which it runs again: rows, failure, model.

        The model first of these: with all rows of a longer run, it would look like its last one.
        """
        if self.sums.wrong(model):  # first: without its checksum it could pass for a sound one
            with writing(model):
                model.unlink(missing_ok=True)
        self.sums.forget(model)
        self.sums.failures.pop(place, None)
        if place in self.sums.rows:
            self.sums.rows[place] = self.metrics.tally.sums(place, last)
        self.sums.write()  # before the files, or a crash in between would look like damage
        with writing(model):
            model.unlink(missing_ok=True)
        if failure := self.failure(place):
            self.failures.remove(failure)
            self._write(RunFile.FAILURES, self.failures)
        self.metrics.trim(place, last)

    def sort(self) -> None:
        """Put the rows in the order in which one session writes them, if there were several."""
        if len(self.sessions) > 1:
            seeds = self.experiment.seeds
            self.metrics.sort([(name, seed) for seed in seeds for name in self.labels])

    def log(self, text: str) -> None:
        """Add a line to run.log, with the time."""
        path = self.folder / RunFile.LOG
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")

    def _read(self, name: RunFile, default: Any) -> Any:
        """The content of a JSON file; a missing one is written with the default."""
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._write(name, default)
            return default
        except OSError as error:
            raise UndriftError(f"{path} cannot be read ({error.strerror or error})") from None
        except (ValueError, RecursionError) as error:
            raise self._damaged(name, str(error)) from None

    def _damaged(self, name: RunFile, reason: str) -> Damaged:
        return Damaged(
            f"{self.folder / name} is damaged ({reason}); restore it from a backup, or remove it "
            "to start it again"
        )

    def _write(self, name: RunFile, content: Any) -> None:
        replace_file(self.folder / name, (json.dumps(content, indent=1) + "\n").encode())


def trial_name(run: Path, experiment: Experiment, made: Algorithm, seed: int) -> str:
    """The name of a trial's files and folder; a hash replaces what would make it too long.

    It has the short label, which does not depend on the other algorithms: they may become more.
    """
    place, short = experiment.algorithms.index(made), label(made)
    if known := trial_named(run, place, seed):  # earlier versions used longer labels
        return known
    plain = re.sub(r"[^A-Za-z0-9]", "_", short).strip("_")
    name = f"{place}-{plain}-seed{seed}"
    if len(name) > LONGEST:
        mark = hashlib.sha256(short.encode()).hexdigest()[:12]
        name = f"{place}-{plain[:SHORTENED]}-{mark}-seed{seed}"
    return name
