"""Mistakes in aggregation that withstands bad clients."""

from __future__ import annotations

import math

import numpy as np

from undrift.checks.conform.mistakes.lattice import of
from undrift.checks.conform.problem import Vector
from undrift.checks.conform.robust import Krum, Median, TrimmedMean


@of(Krum)
class OwnNeighbour(Krum):
    """the update itself among its |P| − f − 2 nearest."""

    def distances(self, i: int) -> list[float]:
        return [0.0, *super().distances(i)]


@of(Krum)
class AllNeighbours(Krum):
    """distances to all other updates instead of the |P| − f − 2 nearest."""

    def nearest(self) -> int:
        return len(self.P)


@of(Krum)
class Farthest(Krum):
    """the m updates with the highest scores instead of the lowest."""

    def score(self, i: int) -> float:
        return -super().score(i)


@of(Median)
class LowerMedian(Median):
    """the lower of two values in the middle instead of their mean."""

    def server(self) -> Vector:
        return np.sort(list(self.y.values()), axis=0)[(len(self.y) - 1) // 2]


@of(TrimmedMean)
class BothEnds(TrimmedMean):
    """half of the fraction at each end instead of all of it."""

    def cut(self) -> int:
        return int(self.fraction / 2 * len(self.P))


@of(TrimmedMean)
class RoundedUp(TrimmedMean):
    """⌈fraction · |P|⌉ values at each end, as far as any are left, instead of ⌊fraction · |P|⌋."""

    def cut(self) -> int:
        return min(math.ceil(self.fraction * len(self.P)), (len(self.P) - 1) // 2)
