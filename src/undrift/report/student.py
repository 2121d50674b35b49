"""Student's t: how far a mean over a few seeds may be off."""

from __future__ import annotations

import math


def quantile(dof: int, share: float = 0.95) -> float:
    """The t that holds `share` of Student's distribution between -t and t: 4.30 for 2 degrees."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        if _share(angle, dof) < share:
            low = angle
        else:
            high = angle
    return math.sqrt(dof) * math.tan(low)


def _share(angle: float, dof: int) -> float:
    """P(|T| <= sqrt(dof) tan(angle)), exact: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    odd, cosine = dof % 2, math.cos(angle)
    term = cosine if odd else 1.0
    total = term if dof > 1 else 0.0
    for k in range(2 + odd, dof, 2):
        term *= (k - 1) / k * cosine**2
        total += term
    area = math.sin(angle) * total
    return 2 / math.pi * (angle + area) if odd else area
