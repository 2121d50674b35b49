"""Reading the files of a run directory, with checks of their contents."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

from undrift.config import UndriftError
from undrift.later import NDArray, np
from undrift.runs.layout import RunFile, StudyFile, is_study

FORMAT = 1
"""Format of run directories: "format" in experiment.json, which the oldest lack."""

FILES = (
    *(RunFile.EXPERIMENT, RunFile.METRICS, RunFile.PARTITION, RunFile.FAILURES),
    RunFile.CLIENTS,
)
"""The files of a run directory that reports read."""


RunState = Literal["running", "finished", "interrupted", "broken"]


def run_state(process: int | None, finished: bool | None) -> RunState:
    """The state of a run.

    process   id of the process that holds its lock; None if there is none
    finished  whether all trials have ended; None if its files cannot be read
    """
    if process is not None:
        return "running"
    if finished is None:
        return "broken"
    return "finished" if finished else "interrupted"


@dataclass(frozen=True)
class Failure:
    """Why a trial (one algorithm on one seed) ended early."""

    algorithm: str
    seed: int
    round: int
    reason: str


def read_experiment(path: Path) -> dict[str, Any]:
    """The content of experiment.json; raises if a field that readers need is not valid."""
    found = parsed(path, _text(path))
    if not isinstance(found, dict):
        raise broken(path, "must hold an object")
    written = found.get("format", FORMAT)
    if not is_whole(written) or written > FORMAT:
        version = f"undrift {found['version']}" if "version" in found else "a newer undrift"
        raise broken(
            path, f"written by {version} in format {written!r}, this one reads {FORMAT}; update it"
        )
    target, seeds = found.get("target"), found.get("seeds")
    if not isinstance(found.get("name"), str):
        raise broken(path, f"name must be a string, got {found.get('name')!r}")
    if not isinstance(seeds, list) or not seeds or not all(is_whole(seed) for seed in seeds):
        raise broken(path, f"seeds must be a list of whole numbers, got {seeds!r}")
    if not is_whole(found.get("rounds", 1)):
        raise broken(path, f"rounds must be a whole number, got {found['rounds']!r}")
    if target is not None and not is_number(target):
        raise broken(path, f"target must be a number or null, got {target!r}")
    if not isinstance(found.get("algorithms"), list) or not found["algorithms"]:
        raise broken(path, "algorithms must be a list with at least one entry")
    return found


def read_names(path: Path, entries: Sequence[Any]) -> dict[str, str]:
    """Algorithm → label, as experiment.json lists them."""
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise broken(path, f"an algorithm must be an object with a name, got {entry!r}")
    names = [entry["name"] for entry in entries]
    if len(set(names)) < len(names):
        raise broken(path, f"the names of algorithms must differ, got {names!r}")
    labels = [str(entry.get("label") or entry["name"]) for entry in entries]
    return {
        name: label if labels.count(label) == 1 else name
        for name, label in zip(names, labels, strict=True)
    }


def read_failures(path: Path) -> tuple[Failure, ...]:
    found = parsed(path, _text(path)) if path.exists() else []
    try:
        return tuple(
            Failure(str(v["algorithm"]), int(v["seed"]), int(v["round"]), str(v["reason"]))
            for v in found
        )
    except (TypeError, KeyError, ValueError, OverflowError):
        raise broken(path, "must be a list of {algorithm, seed, round, reason}") from None


@dataclass(frozen=True)
class LabelCounts:
    """Samples of each class per client; names of clients and classes, if they have some.

    test  test samples of each class; none if they are not known
    """

    counts: NDArray[np.int64]
    clients: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    test: tuple[int, ...] = ()

    @property
    def imbalanced(self) -> bool:
        """Whether the classes of the test samples visibly differ in size: their coefficient of
        variation is above 1/2 (two classes at 75 and 25 %), and more than chance explains."""
        sizes = np.array([size for size in self.test if size])
        if not sizes.size:
            return False
        return bool(sizes.var() / sizes.mean() ** 2 > 0.25 + 1 / sizes.mean())


def read_label_counts(path: Path) -> LabelCounts | None:
    if not path.exists():
        return None
    found = parsed(path, _text(path))
    counts = found.get("label_counts") if isinstance(found, dict) else None
    if counts is None and isinstance(found, dict):
        return None
    try:
        table = np.array(counts, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        table = np.empty(0, dtype=np.int64)
    if table.ndim != 2 or not table.size or (table < 0).any():
        raise broken(path, "label_counts must be one list of counts for each client")
    clients, classes = (
        tuple(map(str, names)) if isinstance(names, list) and len(names) == wanted else ()
        for names, wanted in zip(
            (found.get("clients"), found.get("classes")), table.shape, strict=True
        )
    )
    test = found.get("test_label_counts")
    known = isinstance(test, list) and all(is_whole(size) and size >= 0 for size in test)
    return LabelCounts(table, clients, classes, tuple(test) if known else ())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise missing(path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise broken(path, f"cannot be read ({error})") from None


def parsed(path: Path, text: str, where: str = "") -> Any:
    """The value of a JSON text; `where` begins the error if it is not valid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise broken(path, f"{where}not valid JSON ({error})") from None


def is_json(text: bytes) -> bool:
    """Whether a text is valid JSON, which a line that is still being written is not."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def is_folder(path: Path) -> bool:
    """Whether a folder exists; False for paths that the system refuses, such as too long ones."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def missing(path: Path) -> UndriftError:
    """The error for a file that every run directory has."""
    if not is_folder(path.parent):
        return UndriftError(f"there is no folder {str(path.parent)!r}; `undrift ls` shows the runs")
    if is_study(path.parent):
        return UndriftError(
            f"{str(path.parent)!r} is a study or sweep, not a run: its page is {RunFile.REPORT}, "
            f"its runs are in {StudyFile.TRIALS}/"
        )
    return UndriftError(f"{str(path.parent)!r} is not a run directory: it has no {path.name}")


def broken(path: Path, reason: str) -> UndriftError:
    """The error for a file with invalid content."""
    return UndriftError(f"{str(path)!r}: {reason}")


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a JSON value is a whole number; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any, finite: bool = True) -> bool:
    """Whether a JSON value is a number; true and false are not."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return not finite or abs(value) <= sys.float_info.max
