"""Verifies a run directory against its checksums; nothing is changed."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undrift.config import UndriftError
from undrift.later import np
from undrift.runs.checksums import Checksums
from undrift.runs.entries import TrialKey, is_failure, is_session
from undrift.runs.identity import stored_hash
from undrift.runs.layout import RunFile, checkpoint_files
from undrift.runs.reading import is_folder, read_experiment, read_names
from undrift.runs.rows import Tally, read_rows
from undrift.runs.tensor_file import Content, checksum, read_tensors, record_fields
from undrift.system.files import Damaged
from undrift.system.lock import holder

MARKS = (RunFile.EXPERIMENT, RunFile.METRICS, RunFile.ENVIRONMENT, RunFile.CHECKSUMS)
"""files by one of which a run directory is known, whatever else was lost"""

COPY = "restore it from a backup"
AGAIN = "`undrift resume` computes it again"


@dataclass(frozen=True)
class Problem:
    """Damage to a file of a run, and how to repair it."""

    file: str
    problem: str
    mend: str


@dataclass
class Verified:
    """Result of `verify`.

    process   id of the process that runs it; then nothing is checked
    checked   number of models, rows, failures and checkpoints that were checked
    unsummed  whether the run has no checksums of files, as old ones have none
    """

    run: Path
    process: int | None = None
    problems: list[Problem] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    unsummed: bool = False

    @property
    def state(self) -> str:
        if self.process is not None:
            return "running"
        return "damaged" if self.problems else "sound"

    def add(self, path: Path, problem: str, mend: str) -> None:
        file = path.relative_to(self.run) if path != self.run else Path()
        self.problems.append(Problem(file.as_posix(), problem, mend))

    def count(self, what: str, number: int = 1) -> None:
        self.checked[what] = self.checked.get(what, 0) + number


def verify(run: Path) -> Verified:
    """Check all files of a run, unless it is running: then they change meanwhile."""
    found = Verified(run, holder(run))
    if found.process is not None:
        return found
    settings = run / RunFile.EXPERIMENT
    if not is_folder(run) or not any((run / name).exists() for name in MARKS):
        found.add(run, "is not a run directory", "`undrift ls` lists them")
        return found
    try:
        experiment = read_experiment(settings)
        names = read_names(settings, experiment["algorithms"])
    except UndriftError as error:
        found.add(settings, f"cannot be read: {error}", COPY)
        return found
    if experiment.get("hash") != stored_hash(experiment, names.keys()):
        found.add(settings, "its settings do not match its hash", COPY)
    sums = Checksums(run)
    found.unsummed = not sums.files
    if sums.damage:
        found.add(sums.path, sums.damage, "`undrift resume` computes checksums again")
    trials = {(name, seed) for name in names for seed in experiment["seeds"]}
    _files(found, sums)
    _rows(found, sums, trials)
    _failures(found, sums, trials, experiment.get("rounds", math.inf))
    _sessions(found)
    for folder in sorted((run / RunFile.CHECKPOINTS).glob("*")):
        mend = "`undrift resume` uses the one before it; if the trial is done, remove the file"
        for path in checkpoint_files(folder):
            _checkpoint(found, path, mend)
    for path in sorted((run / RunFile.ORIGIN).glob("*.safetensors")):
        _checkpoint(found, path, "remove it, and `undrift fork` writes it again")
    return found


def _files(found: Verified, sums: Checksums) -> None:
    """Check files with a checksum, and models without one."""
    models = set((found.run / RunFile.MODELS).glob("*.safetensors"))
    for path in sorted(models | {found.run / name for name in sums.files}):
        kind, wrong = path.relative_to(found.run).parts[0], sums.wrong(path)
        if kind == RunFile.MODELS.filename:
            found.count("models")
            if not sums.covers(path):
                wrong = _unreadable(path)
        if wrong:
            mends = {
                RunFile.EXPERIMENT.filename: COPY,
                RunFile.MODELS.filename: f"{AGAIN} from the last checkpoint",
            }
            again = "remove it, and `undrift resume` writes it again"
            found.add(path, wrong, mends.get(kind, again))


def _unreadable(path: Path) -> str:
    try:
        read_tensors(path)
    except Damaged as error:
        return str(error)
    return ""


def _rows(found: Verified, sums: Checksums, trials: set[TrialKey]) -> None:
    """Find lines that are not rows, and trials whose rows do not match their checksum."""
    path, tally = found.run / RunFile.METRICS, Tally()
    try:
        text = path.read_bytes()
    except OSError as error:
        found.add(path, f"cannot be read ({error.strerror or error})", COPY)
        return
    for number, (line, row) in enumerate(read_rows(text, trials), start=1):
        if row is None:
            found.add(path, f"line {number} is not a row of this run", f"{AGAIN}, if it was one")
        else:
            tally.add(row, line)
    found.count("rows", len(tally))
    for place, expected in sums.rows.items():
        here = tally.sums(place, expected["last"])
        if here != expected:
            wrong = "their checksum is wrong"
            if here["count"] != expected["count"]:
                wrong = f"there are {here['count']} up to round {expected['last']}, not "
                wrong += f"{expected['count']}"
            mend = "`undrift resume` measures them again, from the start of the trial"
            found.add(path, f"rows of {place[0]}, seed {place[1]}: {wrong}", mend)


def _list(found: Verified, path: Path, mend: str) -> list[Any]:
    """The list in a JSON file; empty if there is none."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(entries, list):
            return entries
        found.add(path, "is not a list", mend)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RecursionError) as error:
        found.add(path, f"cannot be read ({error})", mend)
    return []


def _failures(found: Verified, sums: Checksums, trials: set[TrialKey], rounds: float) -> None:
    path = found.run / RunFile.FAILURES
    mend = "`undrift resume` runs the trial from its last checkpoint until it fails again"
    entries = _list(found, path, mend)
    found.count("failures", len(entries))
    for entry in entries:
        if not is_failure(entry, trials, rounds):
            found.add(path, f"{str(entry)[:60]} is not a failure of this run", mend)
        elif not sums.knows(entry):
            where = f"{entry['algorithm']}, seed {entry['seed']}"
            found.add(path, f"the failure on {where}: its checksum is wrong", mend)
    told = {(e["algorithm"], e["seed"]) for e in entries if is_failure(e, trials, rounds)}
    for name, seed in sums.failures.keys() - told:
        found.add(path, f"the failure on {name}, seed {seed}, is missing", mend)


def _sessions(found: Verified) -> None:
    path, mend = found.run / RunFile.ENVIRONMENT, f"{COPY}, or remove it"
    if not all(map(is_session, _list(found, path, mend))):
        found.add(path, "has an entry that is not a session", mend)


def _checkpoint(found: Verified, path: Path, mend: str) -> None:
    """Check a checkpoint, and the client records that it refers to."""
    found.count("checkpoints")
    try:
        metadata, tensors = read_tensors(path)
        text = metadata.get("undrift", "")
        if metadata.get("checksum") != checksum(text, tensors):
            raise Damaged("is damaged: its checksum is wrong or missing")
        facts = json.loads(text)
        for place in ("clients", "models"):
            if "folder" in (facts[place] or {}):
                _memories(path.parent / facts[place]["folder"], place, tensors)
    except Damaged as error:
        found.add(path, str(error), mend)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found.add(path, f"is not a checkpoint ({type(error).__name__}: {error})", mend)


def _memories(folder: Path, place: str, tensors: dict[str, Content]) -> None:
    """Check the records of a store that a checkpoint refers to."""
    fields = record_fields(tensors[f"{place}.form"])
    columns = {
        name: np.frombuffer(tensors[f"{place}.{name}"].data, np.int64)
        for name in ("ids", "slots", "sums")
    }
    expected = columns["sums"].reshape(len(columns["ids"]), len(fields))
    for number, (name, size) in enumerate(fields):
        slab = folder / f"{name}.slab"
        try:
            with slab.open("rb") as file:
                for client, slot, crc in zip(
                    columns["ids"], columns["slots"], expected[:, number], strict=True
                ):
                    file.seek(int(slot) * size)
                    if zlib.crc32(file.read(size)) != crc:
                        raise Damaged(f"needs the record of client {client} in {slab}, damaged")
        except OSError as error:
            raise Damaged(f"needs {slab}, which cannot be read ({error.strerror})") from None
