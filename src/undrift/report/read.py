"""Read: a run directory as checked values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
"""what every curve has, if only as NaN"""

FORMAT = 1
"""of run directories: "format" in experiment.json, which the oldest lack"""

PROBLEM = ("data", "partition", "model", "sampler", "rounds", "validation", "dropout")
"""settings that make up the problem to be solved, on which algorithms can be compared"""


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
class Arm:
    """One algorithm of a run.

    label             a short name, unique among all algorithms of a report
    run               the name of its run
    problem           what other runs must have in common with its own to be compared with it
    seeds             those it is to run on; `curves` and `verdicts` are by seed
    last_round        the last round that any algorithm of its run evaluated
    """

    name: str
    label: str
    run: str
    problem: str
    seeds: tuple[int, ...]
    curves: Mapping[int, Curve]
    verdicts: Mapping[int, Verdict]
    last_round: int

    def shared_rounds(self) -> NDArray[np.int64]:
        """The rounds at which every seed was evaluated."""
        curves = list(self.curves.values())
        rounds = curves[0].rounds if curves else np.empty(0, dtype=np.int64)
        for curve in curves[1:]:
            rounds = np.intersect1d(rounds, curve.rounds)
        return rounds

    def band(self, metric: str) -> tuple[Floats, Floats | None]:
        """Mean and sd over seeds, at the rounds all seeds evaluated; no sd for a single seed.

        After one seed has ended, the mean of the others would flatter the algorithm: it ends too.
        """
        shared = self.shared_rounds()
        if not shared.size:
            return np.empty(0), None
        rows = np.array([c[metric][np.isin(c.rounds, shared)] for c in self.curves.values()])
        return rows.mean(axis=0), rows.std(axis=0, ddof=1) if len(rows) > 1 else None


@dataclass(frozen=True, eq=False)
class Run:
    """All that a run directory holds, or several of them as one (see `merge`).

    members     the runs this one was merged from; itself if it was not
    partitions  clients × classes, by the name of the run; none where the task has no labels
    """

    folder: Path
    experiment: Mapping[str, Any]
    name: str
    arms: tuple[Arm, ...]
    target: float | None
    partitions: Mapping[str, NDArray[np.int64]]
    merged: tuple[Run, ...] = ()

    @property
    def members(self) -> tuple[Run, ...]:
        return self.merged or (self,)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of any algorithm."""
        return tuple(sorted({seed for arm in self.arms for seed in arm.seeds}))

    @property
    def curves(self) -> list[Curve]:
        return [curve for arm in self.arms for curve in arm.curves.values()]

    @property
    def begun(self) -> bool:
        """Whether there is anything to report."""
        return any(arm.curves or arm.verdicts for arm in self.arms)

    @property
    def last_round(self) -> int:
        """The last round that any algorithm evaluated."""
        return max(arm.last_round for arm in self.arms)

    @property
    def done(self) -> int:
        """Rounds done, averaged over algorithms and seeds; who ended with a verdict is done."""
        total, done = self.experiment.get("rounds", self.last_round), 0
        pairs = [(arm, seed) for arm in self.arms for seed in arm.seeds]
        for arm, seed in pairs:
            curve = arm.curves.get(seed)
            last = 0 if curve is None else int(curve.rounds[-1])
            done += total if seed in arm.verdicts else min(last, total)
        return done // len(pairs)

    def recorded(self, metric: str) -> bool:
        """Whether there is any value of this metric."""
        return any(bool(np.isfinite(curve[metric]).any()) for curve in self.curves)

    def largest(self, metric: str) -> float:
        """The largest value of a metric; 0 if there is none."""
        return max((float(np.nan_to_num(curve[metric]).max()) for curve in self.curves), default=0)


def read_run(run_dir: Path) -> Run:
    """Load and check a run directory; it may still be running, and have no curves yet.

    A round that was written twice counts as written last. Rows from the round of a verdict on are
    left out: they measure a model that is no longer finite. So is a last line that was torn.
    """
    folder = Path(run_dir)
    if not folder.is_dir():
        raise UndriftError(f"{str(folder)!r} is not a directory; give the one that a run wrote")
    experiment = _experiment(folder / "experiment.json")
    name, seeds = experiment["name"], tuple(experiment["seeds"])
    names = _names(folder / "experiment.json", experiment["algorithms"])
    verdicts = _verdicts(folder / "verdicts.json")
    ends = {(verdict.algorithm, verdict.seed): verdict.round for verdict in verdicts}
    rows = _rows(folder / "metrics.jsonl", set(names), set(seeds))
    every = {key: _curve(by_round, ends.get(key, math.inf)) for key, by_round in rows.items()}
    curves = {key: curve for key, curve in every.items() if curve.rounds.size}
    last_round = max((int(curve.rounds[-1]) for curve in curves.values()), default=0)
    counts = _label_counts(folder / "partition.json")
    return Run(
        folder=folder,
        experiment=experiment,
        name=name,
        arms=tuple(
            Arm(
                name=algorithm,
                label=label,
                run=name,
                problem=json.dumps([experiment.get(key) for key in PROBLEM]),
                seeds=seeds,
                curves={s: curves[algorithm, s] for s in seeds if (algorithm, s) in curves},
                verdicts={v.seed: v for v in verdicts if v.algorithm == algorithm},
                last_round=last_round,
            )
            for algorithm, label in names.items()
        ),
        target=experiment.get("target"),
        partitions={} if counts is None else {name: counts},
    )


def merge(runs: Sequence[Run]) -> Run:
    """Several runs as one: the algorithms of all of them, and the settings they share.

    Where labels would be the same, or problems differ, each algorithm is called by its run as well.
    """
    if len(runs) == 1:
        return runs[0]
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    if len(set(names)) < len(names):
        raise UndriftError(f"a run is given twice among {', '.join(names)}; give each one once")
    runs = [_renamed(run, name) for run, name in zip(runs, names, strict=True)]
    arms = [arm for run in runs for arm in run.arms]
    if len({arm.label for arm in arms}) < len(arms) or len({arm.problem for arm in arms}) > 1:
        arms = [replace(arm, label=f"{arm.label} · {arm.run}") for arm in arms]
    first, *others = (run.experiment for run in runs)
    owners: dict[str, list[str]] = {}
    for run in runs:
        for counts in run.partitions.values():
            owners.setdefault(json.dumps(counts.tolist()), []).append(run.name)
    return Run(
        folder=runs[0].folder.parent,
        experiment={k: v for k, v in first.items() if all(e.get(k) == v for e in others)},
        name=", ".join(names),
        arms=tuple(arms),
        target=runs[0].target if len({run.target for run in runs}) == 1 else None,
        partitions={", ".join(names): np.array(json.loads(c)) for c, names in owners.items()},
        merged=tuple(runs),
    )


def _renamed(run: Run, name: str) -> Run:
    return replace(
        run,
        name=name,
        arms=tuple(replace(arm, run=name) for arm in run.arms),
        partitions=dict(zip([name], run.partitions.values(), strict=False)),
    )


def _experiment(path: Path) -> dict[str, Any]:
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


def _names(path: Path, entries: list[Any]) -> dict[str, str]:
    """Algorithm → label"""
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


def _rows(
    path: Path, names: set[str], seeds: set[int]
) -> dict[tuple[str, int], dict[int, dict[str, float]]]:
    """(algorithm, seed) → round → metric → value"""
    rows: dict[tuple[str, int], dict[int, dict[str, float]]] = {}
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
        if name not in names:
            raise _broken(path, f"{where}algorithm {name!r} is not in experiment.json")
        if not _is_whole(seed) or seed not in seeds:
            raise _broken(path, f"{where}seed {seed!r} is not in experiment.json")
        if not _is_whole(t) or t < 0:
            raise _broken(path, f"{where}round must be a whole number >= 0, got {t!r}")
        values = {metric: _value(path, where, metric, row.get(metric)) for metric in METRICS}
        more = row.keys() - {*METRICS, "seed", "round"}
        values |= {key: float(row[key]) for key in sorted(more) if _is_number(row[key])}
        rows.setdefault((name, seed), {})[t] = values
    return rows


def _curve(by_round: dict[int, dict[str, float]], end: float) -> Curve:
    rounds = sorted(t for t in by_round if t < end)
    metrics = dict.fromkeys(metric for t in rounds for metric in by_round[t])
    values = {m: np.array([by_round[t].get(m, math.nan) for t in rounds]) for m in metrics}
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
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (not finite or math.isfinite(value))
