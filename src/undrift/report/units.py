"""Numbers with decimal prefixes and few digits."""

from __future__ import annotations

import math
from collections.abc import Iterable

_PREFIXES = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"), (1e18, "E"))


def prefix(value: float) -> tuple[float, str]:
    """The largest decimal prefix not above a value: 2.5e6 has (1e6, "M")."""
    fitting = [pair for pair in _PREFIXES if pair[0] <= value]
    return fitting[-1] if fitting else _PREFIXES[0]


def common_prefix(values: Iterable[float]) -> tuple[float, str]:
    """One prefix for a column of numbers: that of the smallest positive one."""
    return prefix(min((v for v in values if math.isfinite(v) and v > 0), default=1.0))


def brief(value: float) -> str:
    """A number with about three digits and never an exponent: 1,234 or 56.7 or 8.90."""
    size = abs(value)
    return f"{value:,.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"


def span(seconds: float) -> str:
    """Time in its largest unit: 3 min, 2 d."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"


def percent(share: float) -> str:
    """A share as a percentage without trailing zeros: 0.8 is "80", 0.825 is "82.5"."""
    return f"{100 * share:.4g}"
