"""Validation of the entries in a run directory's files, which may be damaged."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any, TypeGuard

Row = dict[str, Any]
TrialKey = tuple[str, int]
"""A trial: algorithm and seed."""


def read_row(line: bytes, trials: Container[TrialKey]) -> Row | None:
    """The row in a line of metrics.jsonl; None if it is not a valid row of these trials."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not is_of(row, trials):
        return None
    seconds = row.get("seconds")
    return row if seconds is None or type(seconds) in (int, float) else None


def is_of(entry: Any, trials: Container[TrialKey]) -> TypeGuard[Row]:
    """Whether an entry has the algorithm and seed of one of these trials, and a round."""
    if not isinstance(entry, dict):
        return False
    name, seed, t = entry.get("algorithm"), entry.get("seed"), entry.get("round")
    right = isinstance(name, str) and type(seed) is int and type(t) is int and t >= 0
    return right and (name, seed) in trials


def is_failure(entry: Any, trials: Container[TrialKey], rounds: float) -> TypeGuard[Row]:
    """Whether an entry is a valid failure of one of these trials, in a round up to `rounds`."""
    return is_of(entry, trials) and entry["round"] <= rounds and type(entry.get("reason")) is str


def is_session(entry: Any) -> bool:
    """Whether an entry of environment.json is a session: it names the engine's rounding."""
    return isinstance(entry, dict) and isinstance(entry.get("rounding"), str)
