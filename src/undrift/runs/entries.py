"""Entries: what must stand in the files of a run directory, which anything may have happened to."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any, TypeGuard

Row = dict[str, Any]
TrialKey = tuple[str, int]
"""A trial: algorithm and seed."""


def read_row(line: bytes, trials: Container[TrialKey]) -> Row | None:
    """The row that a line holds, if it is one of these trials."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not is_of(row, trials):
        return None
    seconds = row.get("seconds")
    return row if seconds is None or type(seconds) in (int, float) else None


def is_of(entry: Any, trials: Container[TrialKey]) -> TypeGuard[Row]:
    """Whether an entry tells of a round of one of these trials."""
    if not isinstance(entry, dict):
        return False
    name, seed, t = entry.get("algorithm"), entry.get("seed"), entry.get("round")
    right = isinstance(name, str) and type(seed) is int and type(t) is int and t >= 0
    return right and (name, seed) in trials


def is_failure(entry: Any, trials: Container[TrialKey], rounds: float) -> TypeGuard[Row]:
    """Whether an entry tells why one of these trials ended before its last round was done."""
    return is_of(entry, trials) and entry["round"] <= rounds and type(entry.get("reason")) is str


def is_session(entry: Any) -> bool:
    """Whether an entry of environment.json tells how a session rounded numbers."""
    return isinstance(entry, dict) and isinstance(entry.get("rounding"), str)
