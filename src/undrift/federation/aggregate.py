"""Aggregation: weighted means of the uploads of a round, and checks that they are finite."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor

from undrift.core import Algorithm, Struct, weighted_mean


class Mean:
    """A weighted mean of records, added one at a time; at most log2(n) + 1 sums are kept.

    Addition of floats is not associative, so the order of additions decides the last bits. Here it
    is a binary tree over the clients' places in the round: places 2i and 2i+1 are added, then
    neighbouring pairs, and so on. The bits then depend on places only, not on workers or timing.
    """

    def __init__(self) -> None:
        self.weights: list[float] = []
        self.sums: dict[int, Struct | None] = {}
        """level k → sum over the last complete block of 2^k places; None if all were skipped"""

    def add(self, weight: float, record: Struct) -> None:
        self.weights.append(weight)
        self._carry(record.map(lambda value: weight * value))

    def skip(self) -> None:
        """Leave a place empty. It still counts as a place, so the other sums stay the same."""
        self._carry(None)

    def join(self, later: Mean) -> None:
        """Append the places of `later`, in which every sum moves to the place it has in the whole.

        This needs a multiple of 2^k places before it, if `later` has up to 2^k.
        """
        top = max(later.sums, default=0)
        if any(level < top for level in self.sums):
            raise ValueError(f"a block of 2^{top} places cannot follow levels {sorted(self.sums)}")
        self.weights += later.weights
        for level in sorted(later.sums, reverse=True):  # in the order of the places
            self._carry(later.sums[level], level)

    def _carry(self, new: Struct | None, level: int = 0) -> None:
        # As in counting in binary: a block of 2^k places is added to its left neighbour of the same
        # size as soon as both are complete.
        while level in self.sums:
            new = _sum(self.sums.pop(level), new)
            level += 1
        self.sums[level] = new

    @property
    def shares(self) -> list[float]:
        """The weights, normalised to sum to 1."""
        total = sum(self.weights)
        return [weight / total for weight in self.weights]

    def result(self) -> Struct:
        total, weight = None, sum(self.weights)
        for level in sorted(self.sums):
            total = _sum(self.sums[level], total)
        return total.map(lambda value: value / weight) if total else Struct()


def _sum(a: Struct | None, b: Struct | None) -> Struct | None:
    """The sum of two records, in the memory of the first (a copy); None is an empty place."""
    if a is None or b is None:
        return b if a is None else a

    def plus(one: Any, other: Any) -> Any:
        return one.add_(other) if isinstance(one, Tensor) else one + other

    return a.map(plus, b)


class SurveyMean(Mean):
    """The mean of the answers to a survey."""

    def add(self, weight: float, record: Struct, side: Struct = Struct()) -> None:
        super().add(weight, record)

    def empty(self) -> SurveyMean:
        return SurveyMean()


class Uploads:
    """Means over the clients of a round: of their uploads, and of side values of our own.

    Fields in `algorithm.unweighted` are averaged with equal weights.
    """

    def __init__(self, algorithm: Algorithm, server: Struct) -> None:
        self.algorithm, self.server = algorithm, server
        self.weighted, self.alike = Mean(), Mean()

    def add(self, weight: float, up: Struct, side: Struct) -> None:
        if self.algorithm.unweighted:
            alike, up = _parted(up, self.algorithm.unweighted)
            self.alike.add(1.0, alike)
        self.weighted.add(weight, Struct(up=up, side=side))

    def skip(self) -> None:
        """Leave the place of a client that delivers nothing empty."""
        if self.algorithm.unweighted:
            self.alike.skip()
        self.weighted.skip()

    def empty(self) -> Self:
        """The same for no clients; the server's state is needed for `result` only."""
        return type(self)(self.algorithm, Struct())

    def join(self, later: Self) -> None:
        """Append the clients of `later`, as for `Mean`."""
        self.weighted.join(later.weighted)
        self.alike.join(later.alike)

    def result(self) -> tuple[Struct, Struct, list[float]]:
        """The mean upload, the mean of the side values, and each client's normalised weight."""
        mean = self.weighted.result()
        return mean.up | self.alike.result(), mean.side, self.weighted.shares


class AllUploads(Uploads):
    """The same for algorithms that need all uploads at once, such as robust means.

    Fields in `unweighted` are averaged over the clients whose weight is not zero.
    """

    def __init__(self, algorithm: Algorithm, server: Struct) -> None:
        super().__init__(algorithm, server)
        self.weights: list[float] = []
        self.pairs: list[tuple[Struct, Struct]] = []

    def add(self, weight: float, up: Struct, side: Struct) -> None:
        self.weights.append(weight)
        self.pairs.append((up, side))

    def skip(self) -> None:
        pass

    def join(self, later: Self) -> None:
        self.weights += later.weights
        self.pairs += later.pairs

    def result(self) -> tuple[Struct, Struct, list[float]]:
        ups, sides = zip(*self.pairs, strict=True)
        shares = [weight / sum(self.weights) for weight in self.weights]
        shares = [float(share) for share in self.algorithm.reweigh(self.server, ups, shares)]
        kept = max(1, sum(share > 0 for share in shares))  # the sum is 0 if all shares are NaN
        parts = [_parted(up, self.algorithm.unweighted) for up in ups]
        alike = self.algorithm.combine([a for a, _ in parts], [(w > 0) / kept for w in shares])
        mean = self.algorithm.combine([rest for _, rest in parts], shares)
        return mean | alike, weighted_mean(sides, shares), shares


def _parted(record: Struct, names: tuple[str, ...]) -> tuple[Struct, Struct]:
    """A record split into the fields with these names, and the others."""
    fields = dict(record.items())
    chosen = {name: fields.pop(name) for name in names}
    return Struct(**chosen), Struct(**fields)


def nbytes(message: Struct) -> int:
    """The size of a message in bytes: vectors as stored, 8 for a plain number."""
    return sum(value.nbytes if isinstance(value, Tensor) else 8 for _, value in message.leaves())


def first_bad(*records: Struct, good: Iterable[Tensor] = ()) -> str | None:
    """The name of the first field with a NaN or Inf; tensors in `good` are known to have none."""
    seen = {id(tensor) for tensor in good}
    for record in records:
        for name, value in record.leaves():
            if id(value) not in seen and not _finite(value):
                return name
            seen.add(id(value))
    return None


def _finite(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return math.isfinite(value)
    if value.numel() == 0:
        return True
    # The sum is a fast test: it is finite only if all terms are. It may also overflow, so a sum
    # that is not finite needs the exact test.
    return math.isfinite(value.sum()) or bool(torch.isfinite(value).all())
