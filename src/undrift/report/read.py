"""Read: a run directory as checked values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from undrift.config import UndriftError

Floats = NDArray[np.float64]

METRICS = (
    *("accuracy", "cloud_accuracy", "aggregate_accuracy", "all_accuracy"),
    *("loss", "cloud_loss", "aggregate_loss", "all_loss", "train_loss"),
    *("x_norm", "h_norm", "h_cosine", "drift", "gsi", "factor", "label_similarity"),
    *("delivered", "dropped", "bytes_down", "bytes_up", "flops", "seconds"),
)


@dataclass(frozen=True)
class Arm:
    """One algorithm of a comparison; `label` is unique within its run."""

    name: str
    label: str


@dataclass(frozen=True)
class Verdict:
    """Why the run of one algorithm on one seed ended early."""

    algorithm: str
    seed: int
    round: int
    reason: str


@dataclass(frozen=True, eq=False)
class Curve:
    """One algorithm on one seed: the evaluated rounds and every metric there, NaN for no value."""

    rounds: NDArray[np.int64]
    values: Mapping[str, Floats]

    def __getitem__(self, metric: str) -> Floats:
        if metric == "round":
            return self.rounds.astype(np.float64)
        if metric == "bytes":
            return self.values["bytes_down"] + self.values["bytes_up"]
        return self.values[metric]


@dataclass(frozen=True, eq=False)
class Run:
    """All that a run directory holds."""

    experiment: Mapping[str, Any]
    name: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    target: float | None
    curves: Mapping[tuple[str, int], Curve]
    verdicts: tuple[Verdict, ...] = ()
    label_counts: NDArray[np.int64] | None = None
    """clients × classes; None where the task has no labels"""

    @property
    def last_round(self) -> int:
        """The last round that any run of the comparison evaluated."""
        return max((int(curve.rounds[-1]) for curve in self.curves.values()), default=0)

    def of(self, arm: Arm) -> dict[int, Curve]:
        """The curves of one algorithm, by seed."""
        found = {seed: self.curves.get((arm.name, seed)) for seed in self.seeds}
        return {seed: curve for seed, curve in found.items() if curve is not None}

    def diverged(self, arm: Arm) -> dict[int, Verdict]:
        """The verdicts on one algorithm, by seed."""
        return {v.seed: v for v in self.verdicts if v.algorithm == arm.name}

    def recorded(self, metric: str) -> bool:
        """Whether any run has a value of this metric."""
        return any(bool(np.isfinite(curve[metric]).any()) for curve in self.curves.values())

    def largest(self, metric: str) -> float:
        """The largest value of a metric in any run; 0 if there is none."""
        return max((float(np.nan_to_num(c[metric]).max()) for c in self.curves.values()), default=0)

    def band(self, arm: Arm, metric: str) -> tuple[Floats, Floats | None]:
        """Mean and sd over seeds, at the rounds all seeds evaluated; no sd for a single seed.

        After one seed has ended, the mean of the others would flatter the algorithm: it ends too.
        """
        curves = list(self.of(arm).values())
        shared = self.shared_rounds(arm)
        if not shared.size:
            return np.empty(0), None
        rows = np.array([c[metric][np.isin(c.rounds, shared)] for c in curves])
        return rows.mean(axis=0), rows.std(axis=0, ddof=1) if len(curves) > 1 else None

    def shared_rounds(self, arm: Arm) -> NDArray[np.int64]:
        """The rounds at which every seed of one algorithm was evaluated."""
        curves = list(self.of(arm).values())
        rounds = curves[0].rounds if curves else np.empty(0, dtype=np.int64)
        for curve in curves[1:]:
            rounds = np.intersect1d(rounds, curve.rounds)
        return rounds


def read_run(run_dir: Path) -> Run:
    """Load and check a run directory.

    A round that was written twice counts as written last. Rows from the round of a verdict on are
    left out: they measure a model that is no longer finite.
    """
    folder = Path(run_dir)
    if not folder.is_dir():
        raise UndriftError(f"{str(folder)!r} is not a directory; give the one that a run wrote")
    experiment = _experiment(folder / "experiment.json")
    arms = _arms(folder / "experiment.json", experiment["algorithms"])
    seeds = tuple(experiment["seeds"])
    verdicts = _verdicts(folder / "verdicts.json")
    ends = {(verdict.algorithm, verdict.seed): verdict.round for verdict in verdicts}
    rows = _rows(folder / "metrics.jsonl", {arm.name for arm in arms}, set(seeds))
    curves = {key: _curve(by_round, ends.get(key, math.inf)) for key, by_round in rows.items()}
    return Run(
        experiment=experiment,
        name=experiment["name"],
        arms=arms,
        seeds=seeds,
        target=experiment.get("target"),
        curves={key: curve for key, curve in curves.items() if curve.rounds.size},
        verdicts=verdicts,
        label_counts=_label_counts(folder / "partition.json"),
    )


def _experiment(path: Path) -> dict[str, Any]:
    found = _json(path, _text(path))
    if not isinstance(found, dict):
        raise _broken(path, "must hold an object")
    target, seeds = found.get("target"), found.get("seeds")
    if not isinstance(found.get("name"), str):
        raise _broken(path, f"name must be a string, got {found.get('name')!r}")
    if not isinstance(seeds, list) or not seeds or not all(_is_whole(seed) for seed in seeds):
        raise _broken(path, f"seeds must be a list of whole numbers, got {seeds!r}")
    if target is not None and not _is_number(target):
        raise _broken(path, f"target must be a number or null, got {target!r}")
    if not isinstance(found.get("algorithms"), list) or not found["algorithms"]:
        raise _broken(path, "algorithms must be a list with at least one entry")
    return found


def _arms(path: Path, entries: list[Any]) -> tuple[Arm, ...]:
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise _broken(path, f"an algorithm must be an object with a name, got {entry!r}")
    names = [entry["name"] for entry in entries]
    if len(set(names)) < len(names):
        raise _broken(path, f"the names of algorithms must differ, got {names!r}")
    labels = [str(entry.get("label") or entry["name"]) for entry in entries]
    return tuple(
        Arm(name, label if labels.count(label) == 1 else name)
        for name, label in zip(names, labels, strict=True)
    )


def _rows(
    path: Path, names: set[str], seeds: set[int]
) -> dict[tuple[str, int], dict[int, dict[str, float]]]:
    """(algorithm, seed) → round → metric → value"""
    rows: dict[tuple[str, int], dict[int, dict[str, float]]] = {}
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"line {number}: "
        row = _json(path, line, where)
        if not isinstance(row, dict):
            raise _broken(path, f"{where}must hold an object")
        name, seed, t = row.get("algorithm"), row.get("seed"), row.get("round")
        if name not in names:
            raise _broken(path, f"{where}algorithm {name!r} is not in experiment.json")
        if not _is_whole(seed) or seed not in seeds:
            raise _broken(path, f"{where}seed {seed!r} is not in experiment.json")
        if not _is_whole(t) or t < 0:
            raise _broken(path, f"{where}round must be a whole number >= 0, got {t!r}")
        values = {metric: _value(path, where, metric, row.get(metric)) for metric in METRICS}
        rows.setdefault((name, seed), {})[t] = values
    if not rows:
        raise _broken(path, "holds no evaluated round; run the experiment first")
    return rows


def _curve(by_round: dict[int, dict[str, float]], end: float) -> Curve:
    rounds = sorted(t for t in by_round if t < end)
    values = {m: np.array([by_round[t][m] for t in rounds], dtype=np.float64) for m in METRICS}
    return Curve(np.array(rounds, dtype=np.int64), values)


def _value(path: Path, where: str, metric: str, value: Any) -> float:
    if value is None:
        return math.nan
    if not _is_number(value, finite=False):
        raise _broken(path, f"{where}{metric} must be a number or null, got {value!r}")
    return float(value) if math.isfinite(value) else math.nan


def _verdicts(path: Path) -> tuple[Verdict, ...]:
    found = _json(path, _text(path)) if path.exists() else []
    try:
        return tuple(
            Verdict(str(v["algorithm"]), int(v["seed"]), int(v["round"]), str(v["reason"]))
            for v in found
        )
    except (TypeError, KeyError, ValueError):
        raise _broken(path, "must be a list of {algorithm, seed, round, reason}") from None


def _label_counts(path: Path) -> NDArray[np.int64] | None:
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


def _broken(path: Path, reason: str) -> UndriftError:
    return UndriftError(f"{str(path)!r}: {reason}")


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any, finite: bool = True) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (not finite or math.isfinite(value))
