"""Spaces: the values of one setting that a search draws from, as text: `log(0.01, 1)`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from undrift.config import UndriftError, shortened

DIGITS = 4
"""significant digits of drawn numbers: more would say nothing, and would be hard to read"""

SUCH = "log(0.01, 1), linear(0, 1), int(8, 64) or values such as 0.2, 0.4, 0.6"

Plain = str | int | float | bool


@dataclass(frozen=True)
class Space:
    """The values from `low` to `high`, drawn on a linear or logarithmic scale; or single values."""

    kind: Literal["log", "linear", "int", "values"]
    low: float = 0.0
    high: float = 0.0
    values: tuple[Plain, ...] = ()

    def __str__(self) -> str:
        if self.kind == "values":
            return ", ".join(map(str, self.values))
        return f"{self.kind}({self.low:g}, {self.high:g})"

    @property
    def ends(self) -> tuple[Plain, ...]:
        """All values, or the smallest and the largest."""
        if self.kind == "values":
            return self.values
        return (self.rounded(self.low), self.rounded(self.high))

    def __contains__(self, value: object) -> bool:
        if self.kind == "values":
            return value in self.values
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.low <= value <= self.high and (self.kind != "int" or value == int(value))

    def at(self, share: float) -> Plain:
        """The value at a share of the way through the space, 0 <= share < 1."""
        if self.kind == "values":
            return self.values[int(share * len(self.values))]
        if self.kind == "int":
            return int(self.low + share * (self.high - self.low + 1))
        if self.kind == "log":
            return self.rounded(self.low * (self.high / self.low) ** share)
        return self.rounded(self.low + share * (self.high - self.low))

    def rounded(self, value: float) -> float | int:
        """A number with few digits, within the space."""
        if self.kind == "int":
            return int(value)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def share(self, value: Any) -> float:
        """Where a value lies in the space, from 0 to 1."""
        if self.kind == "values":
            return self.values.index(value) / max(1, len(self.values) - 1)
        low, high, value = (math.log(one) if self.kind == "log" else one for one in
                            (self.low, self.high, value))  # fmt: skip
        return float((value - low) / (high - low))


def space(given: str | Sequence[Any] | Space) -> Space:
    """The space that a text or a list of values stands for."""
    if isinstance(given, Space):
        return given
    if not isinstance(given, str):
        return _values(list(given), given)
    found = re.fullmatch(r"\s*(log|linear|int)\s*\((.*)\)\s*", given)
    if not found:
        return _values([_plain(one) for one in given.split(",")], given)
    kind, (low, high) = found[1], _bounds(found[2], given)
    if not low < high:
        raise UndriftError(f"{given!r}: the first number must be less than the second")
    if kind == "log" and low <= 0:
        raise UndriftError(f"{given!r}: a logarithmic scale begins above 0; or take linear(...)")
    if kind == "int" and (low != int(low) or high != int(high)):
        raise UndriftError(f"{given!r}: must be whole numbers")
    return Space(kind, low, high)  # type: ignore[arg-type]


def _bounds(text: str, given: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UndriftError(f"{given!r}: give the smallest and the largest value, as in {SUCH}")
    return low, high


def _values(values: list[Any], given: Any) -> Space:
    right = all(isinstance(one, Plain) and one != "" for one in values)
    if not right or len(set(values)) < len(values) or not values:
        raise UndriftError(f"{shortened(given)}: give {SUCH}; different ones")
    return Space("values", values=tuple(values))


def _plain(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()
