"""Validation of the entries in a run directory's files, which may be damaged."""

from __future__ import annotations

import json
import math
from collections.abc import Container
from typing import Any, TypeGuard

from undrift.measure.quantities import KEYS, LISTS, METRICS
from undrift.runs.layout import RunFile
from undrift.runs.reading import is_number, is_whole

Row = dict[str, Any]
TrialKey = tuple[str, int]
"""A trial: algorithm and seed."""


class NotARow(Exception):
    """Why a line of metrics.jsonl is no row of a run."""


def parse_row(line: bytes, trials: Container[TrialKey]) -> Row:
    """The row of one of these trials that a line holds; its values are not checked yet."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotARow(f"not valid JSON ({error})") from None
    if not isinstance(row, dict):
        raise NotARow("must hold an object")
    name, seed, t = row.get("algorithm"), row.get("seed"), row.get("round")
    if not isinstance(name, str) or not is_whole(seed) or (name, seed) not in trials:
        raise NotARow(f"algorithm {name!r} with seed {seed!r} is not in {RunFile.EXPERIMENT}")
    if not is_whole(t) or not 0 <= t < 2**53:
        raise NotARow(f"round must be a whole number >= 0, got {t!r}")
    return row


def measured(row: Row) -> tuple[dict[str, float], dict[str, list[float]]]:
    """The numbers and the lists of a row by their names; NaN for null and what is not finite.

    All of METRICS and LISTS are there, and what else the row has that is a number.
    """
    values = {name: _number(name, row.get(name)) for name in METRICS}
    more = sorted(row.keys() - KNOWN)
    values |= {name: float(row[name]) for name in more if is_number(row[name])}
    return values, {name: _numbers(name, row.get(name)) for name in LISTS}


KNOWN = {*METRICS, *LISTS, *KEYS}


def _number(name: str, value: Any) -> float:
    if type(value) is float and value - value == 0:  # fast path: finite
        return value
    if value is None:
        return math.nan
    if not is_number(value, finite=False):
        raise NotARow(f"{name} must be a number or null, got {value!r}")
    return float(value) if is_number(value) else math.nan


def _numbers(name: str, values: Any) -> list[float]:
    if values is None:
        return []
    if not isinstance(values, list):
        raise NotARow(f"{name} must be a list of numbers or null, got {values!r}")
    return [_number(name, value) for value in values]


def read_row(line: bytes, trials: Container[TrialKey]) -> Row | None:
    """The row that a line holds; None if it is no row of one of these trials."""
    try:
        row = parse_row(line, trials)
        measured(row)
    except NotARow:
        return None
    return row


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
