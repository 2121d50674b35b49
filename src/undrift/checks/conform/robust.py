"""Aggregation that withstands bad clients, in plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from undrift.checks.conform.frame import Rule
from undrift.checks.conform.problem import Vector


class Krum(Rule):
    """The plain mean of the m updates that lie closest to their neighbours."""

    equations: ClassVar = {
        "x": "x ← x − mean of the m updates g_i with the lowest s_i (ties by position),"
        "  s_i = Σ ||g_i − g_j||² over the |P| − f − 2 (at least 1) nearest j",
    }
    settings: ClassVar = {"f": 1}
    optional: ClassVar = {"m": 2}
    neutral: ClassVar = {"m": 5}
    weights = "uniform"
    f: int
    m = 1

    def server(self) -> Vector:
        return self.step(self.mean({i: self.g[i] for i in self.kept()}))

    def counted(self) -> Sequence[int]:
        return self.kept()

    def kept(self) -> list[int]:
        return sorted(self.P, key=self.score)[: self.m]

    def score(self, i: int) -> float:
        return sum(sorted(self.distances(i))[: self.nearest()])

    def nearest(self) -> int:
        return max(len(self.P) - self.f - 2, 1)

    def distances(self, i: int) -> list[float]:
        """Squared distances to the other updates."""
        return [float(np.sum((self.g[i] - self.g[j]) ** 2)) for j in self.P if j != i]


class ByCoordinate(Rule):
    """Each coordinate without its largest and smallest values; all clients count alike."""

    optional: ClassVar = {}
    weights = "uniform"
    weighted = False

    def server(self) -> Vector:
        cut, values = self.cut(), np.sort([self.g[i] for i in self.P], axis=0)
        return self.step(values[cut : len(values) - cut].mean(axis=0))

    def cut(self) -> int:
        """How many values go at each end."""
        raise NotImplementedError


class Median(ByCoordinate):
    """The median of each coordinate."""

    equations: ClassVar = {
        "x": "x ← x − median of the g_i in each coordinate, the mean of two values in the middle"
    }

    def cut(self) -> int:
        return (len(self.P) - 1) // 2


class TrimmedMean(ByCoordinate):
    """The mean of each coordinate without a fraction of the values at each end."""

    equations: ClassVar = {
        "x": "x ← x − mean of the g_i, in each coordinate without the ⌊fraction · |P|⌋ largest and"
        " smallest values",
    }
    settings: ClassVar = {"fraction": 0.34}
    neutral: ClassVar = {"fraction": 0.0}
    fraction: float

    def cut(self) -> int:
        return int(self.fraction * len(self.P))
