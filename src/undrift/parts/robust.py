"""Aggregation that resists a few bad clients: Krum, Median, TrimmedMean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undrift.core import Part, Struct, Vector, real, whole
from undrift.vectors import coordinate_mean, square_distances


@dataclass(frozen=True)
class Krum(Part):
    """Keeps the m updates that lie closest to their neighbours and takes their plain mean.

    f   bad clients to withstand in a round   m   updates to keep; m > 1 is Multi-Krum

    f belongs to the cohort, not to all clients: with r updates, 2f + 2 < r is needed, and no cohort
    may have more than f bad clients in it. Samplers that draw too few are refused.

    An update's score is the sum of its r−f−2 (at least 1) smallest squared distances to the others
    of the round's r updates; the m lowest scores are kept, ties by position.

    Cost: none to clients; the server holds all updates of a round and compares all pairs.
    Deviations: if fewer than m clients deliver, all are kept; rounds in which 2f + 2 or fewer do,
    as others drop out, go on without the promise.
    Reference: Blanchard et al., Machine learning with adversaries, NeurIPS 2017,
    https://arxiv.org/abs/1703.02757.

    >>> undrift.algorithm("Krum(FedAvg(), f=2, m=3)")
    Krum(FedAvg(), f=2, m=3)
    """

    f: int = whole(1, ge=0)
    m: int = whole(1, ge=1)

    rank = 1
    holistic = True

    @property
    def quorum(self) -> float:
        return 2 * self.f + 3

    def reweigh(self, s: Struct, ups: Sequence[Struct], w: Vector) -> Vector:
        r = len(ups)
        nearest = max(r - self.f - 2, 1)
        rows = square_distances([up.delta for up in ups])
        scores = [float(row.sort().values[1 : 1 + nearest].sum()) for row in rows]
        kept = sorted(range(r), key=lambda k: scores[k])[: self.m]
        return [1 / len(kept) if k in kept else 0.0 for k in range(r)]


@dataclass(frozen=True)
class Median(Part):
    """The median of the updates, coordinate by coordinate, all clients alike.

    Cost: none to clients; the server holds all updates of a round.
    Deviations: none; the mean of the two middle values for an even number of clients.
    Reference: Yin et al., Byzantine-robust distributed learning: Towards optimal statistical rates,
    ICML 2018, https://arxiv.org/abs/1803.01498.

    >>> undrift.algorithm("median")
    Median(FedAvg())
    """

    rank = 1
    holistic = True

    def combine(self, ups: Sequence[Struct], w: Vector) -> Struct:
        cut = (len(ups) - 1) // 2
        return ups[0].map(lambda *values: coordinate_mean(values, cut), *ups[1:])


@dataclass(frozen=True)
class TrimmedMean(Part):
    """The mean of each coordinate without its `fraction` largest and smallest values.

    All clients count alike.

    Neutral: fraction=0.
    Cost and reference: as Median. See https://arxiv.org/abs/1803.01498.
    Deviations: none; floor(fraction · clients) values go at each end.

    >>> undrift.algorithm("TrimmedMean(SCAFFOLD(), fraction=0.2)")
    TrimmedMean(SCAFFOLD(), fraction=0.2)
    """

    fraction: float = real(0.1, ge=0, lt=0.5, tune="linear(0.05, 0.45)")

    rank = 1
    holistic = True

    def combine(self, ups: Sequence[Struct], w: Vector) -> Struct:
        cut = int(self.fraction * len(ups) + 1e-9)  # 0.29 of 100 is 29
        return ups[0].map(lambda *values: coordinate_mean(values, cut), *ups[1:])
