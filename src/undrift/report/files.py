"""Files: what stands in each file of a run directory, checked."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from undrift.config import UndriftError

METRICS = (
    *("accuracy", "cloud_accuracy", "aggregate_accuracy", "all_accuracy", "validation_accuracy"),
    *("loss", "cloud_loss", "aggregate_loss", "all_loss", "validation_loss", "train_loss"),
    *("x_norm", "h_norm", "h_cosine", "drift", "gsi", "factor", "label_similarity"),
    *("delivered", "dropped", "coverage", "client_accuracy_worst", "client_accuracy_sd"),
    *("bytes_down", "bytes_up", "flops", "seconds"),
)
"""what every curve has, if only as NaN"""

LISTS = ("group_gsi", "group_factor", "client_accuracy")
"""what has several values in a round: one for each parameter group, or quantiles over clients"""

FORMAT = 1
"""of run directories: "format" in experiment.json, which the oldest lack"""

FILES = ("experiment.json", "metrics.jsonl", "partition.json", "verdicts.json")
"""all that is read of a run directory"""


@dataclass(frozen=True)
class Verdict:
    """Why the run of one algorithm on one seed ended early."""

    algorithm: str
    seed: int
    round: int
    reason: str


@dataclass(frozen=True)
class Evaluation:
    """One row of metrics.jsonl."""

    values: dict[str, float]
    lists: dict[str, list[float]]


def read_experiment(path: Path) -> dict[str, Any]:
    """The settings; those that all else relies on are checked."""
    found = _json(path, _text(path))
    if not isinstance(found, dict):
        raise _broken(path, "must hold an object")
    written = found.get("format", FORMAT)
    if not _is_whole(written) or written > FORMAT:
        version = f"undrift {found['version']}" if "version" in found else "a newer undrift"
        raise _broken(
            path, f"written by {version} in format {written!r}, this one reads {FORMAT}; update it"
        )
    target, seeds = found.get("target"), found.get("seeds")
    if not isinstance(found.get("name"), str):
        raise _broken(path, f"name must be a string, got {found.get('name')!r}")
    if not isinstance(seeds, list) or not seeds or not all(_is_whole(seed) for seed in seeds):
        raise _broken(path, f"seeds must be a list of whole numbers, got {seeds!r}")
    if not _is_whole(found.get("rounds", 1)):
        raise _broken(path, f"rounds must be a whole number, got {found['rounds']!r}")
    if target is not None and not _is_number(target):
        raise _broken(path, f"target must be a number or null, got {target!r}")
    if not isinstance(found.get("algorithms"), list) or not found["algorithms"]:
        raise _broken(path, "algorithms must be a list with at least one entry")
    return found


def read_names(path: Path, entries: Sequence[Any]) -> dict[str, str]:
    """Algorithm → label, as experiment.json lists them."""
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise _broken(path, f"an algorithm must be an object with a name, got {entry!r}")
    names = [entry["name"] for entry in entries]
    if len(set(names)) < len(names):
        raise _broken(path, f"the names of algorithms must differ, got {names!r}")
    labels = [str(entry.get("label") or entry["name"]) for entry in entries]
    return {
        name: label if labels.count(label) == 1 else name
        for name, label in zip(names, labels, strict=True)
    }


def read_rows(
    path: Path, names: set[str], seeds: set[int]
) -> dict[tuple[str, int], dict[int, Evaluation]]:
    """(algorithm, seed) → round → what was measured; a torn last line is left out"""
    rows: dict[tuple[str, int], dict[int, Evaluation]] = {}
    text = _text(path)
    whole, _, torn = text.rpartition("\n")
    if _is_json(torn):
        whole = text
    for number, line in enumerate(whole.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"line {number}: "
        row = _json(path, line, where)
        if not isinstance(row, dict):
            raise _broken(path, f"{where}must hold an object")
        name, seed, t = row.get("algorithm"), row.get("seed"), row.get("round")
        if not isinstance(name, str) or name not in names:
            raise _broken(path, f"{where}algorithm {name!r} is not in experiment.json")
        if not _is_whole(seed) or seed not in seeds:
            raise _broken(path, f"{where}seed {seed!r} is not in experiment.json")
        if not _is_whole(t) or not 0 <= t < 2**53:
            raise _broken(path, f"{where}round must be a whole number >= 0, got {t!r}")
        values = {metric: _value(path, where, metric, row.get(metric)) for metric in METRICS}
        more = row.keys() - {*METRICS, "seed", "round"}
        values |= {key: float(row[key]) for key in sorted(more) if _is_number(row[key])}
        lists = {key: _list(path, where, key, row.get(key)) for key in LISTS}
        rows.setdefault((name, seed), {})[t] = Evaluation(values, lists)
    return rows


def _value(path: Path, where: str, metric: str, value: Any) -> float:
    if type(value) is float and value - value == 0:  # the usual case, of millions: finite
        return value
    if value is None:
        return math.nan
    if not _is_number(value, finite=False):
        raise _broken(path, f"{where}{metric} must be a number or null, got {value!r}")
    return float(value) if _is_number(value) else math.nan


def _list(path: Path, where: str, metric: str, values: Any) -> list[float]:
    if values is None:
        return []
    if not isinstance(values, list):
        raise _broken(path, f"{where}{metric} must be a list of numbers or null, got {values!r}")
    return [_value(path, where, metric, value) for value in values]


def read_verdicts(path: Path) -> tuple[Verdict, ...]:
    found = _json(path, _text(path)) if path.exists() else []
    try:
        return tuple(
            Verdict(str(v["algorithm"]), int(v["seed"]), int(v["round"]), str(v["reason"]))
            for v in found
        )
    except (TypeError, KeyError, ValueError, OverflowError):
        raise _broken(path, "must be a list of {algorithm, seed, round, reason}") from None


def read_label_counts(path: Path) -> NDArray[np.int64] | None:
    if not path.exists():
        return None
    found = _json(path, _text(path))
    counts = found.get("label_counts") if isinstance(found, dict) else None
    if counts is None and isinstance(found, dict):
        return None
    try:
        table = np.array(counts, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        table = np.empty(0, dtype=np.int64)
    if table.ndim != 2 or not table.size or (table < 0).any():
        raise _broken(path, "label_counts must be one list of counts for each client")
    return table


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UndriftError(
            f"{str(path.parent)!r} is not a run directory: it has no {path.name}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(path, f"cannot be read ({error})") from None


def _json(path: Path, text: str, where: str = "") -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"{where}not valid JSON ({error})") from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _broken(path: Path, reason: str) -> UndriftError:
    return UndriftError(f"{str(path)!r}: {reason}")


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any, finite: bool = True) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return not finite or abs(value) <= sys.float_info.max
