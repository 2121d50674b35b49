"""Noise: what other validation clients, drawn alike, could have made of a trial's result.

The result is a ratio of sums over clients: right answers, or losses, through all answers. Its
linear expansion gives every client a part, whose mean is the result and whose spread its noise.
The parts of two trials on the same clients are compared client by client.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from undrift.later import np
from undrift.report.estimate import Estimate
from undrift.report.score import Score
from undrift.runs.clients import read_clients
from undrift.runs.columns import Floats
from undrift.runs.layout import RunFile


def parts(run: Path, objective: float, score: Score) -> Floats | None:
    """The part of each validation client, of all seeds, in the result of a run.

    None if it has no results of single clients, or only one.
    """
    rows = read_clients(run / RunFile.VALIDATION)
    if len(rows) < 2:
        return None
    answers = np.array([float(row["answers"]) for row in rows])
    sums = np.array([float(row["loss" if score.lower else "right"]) for row in rows])
    ratio = sums.sum() / answers.sum()
    slope = 0.5 / math.sqrt(ratio) if score.root and ratio > 0 else 1.0
    return np.asarray(objective + slope * (sums - ratio * answers) / answers.mean())


def estimate(some: Floats | None, score: Score) -> Estimate | None:
    """A result with its interval over validation clients."""
    return None if some is None else Estimate.of(some.tolist(), score.bounds)


def gap(one: Floats | None, other: Floats | None) -> Estimate | None:
    """One result minus another, over the same validation clients."""
    if one is None or other is None or len(one) != len(other):
        return None
    return Estimate.of((one - other).tolist())


def by_seed(one: dict[str, Any], other: dict[str, Any]) -> Estimate | None:
    """One result on fresh seeds minus another, as the store has them, seed by seed."""
    both = [seed for seed in one["test"] if seed in other["test"]]
    pairs = [(one["test"][seed], other["test"][seed]) for seed in both]
    return Estimate.of([a - b for a, b in pairs if a is not None and b is not None])


def half_width(one: Estimate) -> float:
    """Half of an interval; it falls with the root of the number of clients."""
    return math.nan if one.interval is None else (one.interval[1] - one.interval[0]) / 2


def needed(one: Estimate) -> int | None:
    """Clients with which a difference as large as this would be told from zero."""
    half = half_width(one)
    return math.ceil(one.n * (half / one.mean) ** 2) if one.mean and half == half else None
