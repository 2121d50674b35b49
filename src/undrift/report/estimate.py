"""Estimates: the mean over a few seeds, with an interval by Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from undrift.later import np

LEAST_SEEDS = 3
"""seeds that an interval needs: with two, Student's t is too wide to be of use"""

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds; sd (ddof=1) is None for one seed. All values lie within the bounds."""

    mean: float
    sd: float | None
    n: int
    bounds: Bounds | None = None

    @staticmethod
    def of(values: Sequence[float], bounds: Bounds | None = None) -> Estimate | None:
        """The estimate from all finite values; None if there are none."""
        finite = [float(value) for value in values if math.isfinite(value)]
        if not finite:
            return None
        sd = float(np.std(finite, ddof=1)) if len(finite) > 1 else None
        return Estimate(float(np.mean(finite)), sd, len(finite), bounds)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean by Student's t; None below three seeds.

        It stays within the bounds of the values: with two it is computed on the logit scale, with
        a lower one alone on the logarithmic scale.
        """
        if self.sd is None or self.n < LEAST_SEEDS:
            return None
        half = quantile(self.n - 1) * self.sd / math.sqrt(self.n)
        low, high = self.bounds or (-math.inf, math.inf)
        if math.isinf(low) or not low < self.mean < high:
            return self.mean - half, self.mean + half
        above, room = self.mean - low, high - low
        if math.isinf(high):
            return low + above * math.exp(-half / above), low + above * math.exp(half / above)
        middle, wide = math.log(above / (room - above)), half * room / (above * (room - above))
        ends = [0.5 + 0.5 * math.tanh((middle + sign * wide) / 2) for sign in (-1, 1)]
        return low + room * ends[0], low + room * ends[1]


def quantile(dof: int, share: float = 0.95) -> float:
    """The t with P(|T| <= t) = share: 4.30 for 2 degrees of freedom. Found by bisection."""
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
