"""From many uploads to one: weighted means, and checks of what arrives."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from undrift.core import Algorithm, Struct, weighted_mean


class Mean:
    """A weighted mean of records, built up one by one so that few need to be kept.

    Sums are taken in pairs, pairs of pairs and so on by the clients' places in the cohort, so the
    bits depend neither on who ran where nor on when; a client that delivers nothing leaves its
    place empty.
    """

    def __init__(self) -> None:
        self.weights: list[float] = []
        self.sums: dict[int, Struct | None] = {}
        """by level k: the sum over 2^k places"""

    def add(self, weight: float, record: Struct) -> None:
        self.weights.append(weight)
        self._carry(record.map(lambda value: weight * value))

    def skip(self) -> None:
        """Leave a place empty."""
        self._carry(None)

    def _carry(self, new: Struct | None) -> None:
        level = 0
        while level in self.sums:
            new = _sum(self.sums.pop(level), new)
            level += 1
        self.sums[level] = new

    @property
    def shares(self) -> list[float]:
        """The weights, made to add up to 1."""
        total = sum(self.weights)
        return [weight / total for weight in self.weights]

    def result(self) -> Struct:
        total, weight = None, sum(self.weights)
        for level in sorted(self.sums):
            total = _sum(self.sums[level], total)
        return total.map(lambda value: value / weight) if total else Struct()


def _sum(a: Struct | None, b: Struct | None) -> Struct | None:
    """The sum of two records, in the memory of the first."""
    if a is None or b is None:
        return b if a is None else a

    def plus(one: Any, other: Any) -> Any:
        return one.add_(other) if isinstance(one, Tensor) else one + other

    return a.map(plus, b)


class Uploads:
    """The uploads of a round and what goes with each, as one mean."""

    def __init__(self, algorithm: Algorithm, server: Struct) -> None:
        self.algorithm, self.server = algorithm, server
        self.weighted, self.alike = Mean(), Mean()

    def add(self, weight: float, up: Struct, side: Struct) -> None:
        if self.algorithm.unweighted:
            alike, up = _parted(up, self.algorithm.unweighted)
            self.alike.add(1.0, alike)
        self.weighted.add(weight, Struct(up=up, side=side))

    def skip(self) -> None:
        """A client that delivers nothing."""
        self.alike.skip()
        self.weighted.skip()

    def result(self) -> tuple[Struct, Struct, list[float]]:
        """The mean upload, the mean of what went with it, and each client's share in them."""
        mean = self.weighted.result()
        return mean.up | self.alike.result(), mean.side, self.weighted.shares


class AllUploads(Uploads):
    """The same for algorithms that must see all uploads at once.

    Where clients count alike, those do that were not given the weight 0.
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

    def result(self) -> tuple[Struct, Struct, list[float]]:
        ups, sides = zip(*self.pairs, strict=True)
        shares = [weight / sum(self.weights) for weight in self.weights]
        shares = [float(share) for share in self.algorithm.reweigh(self.server, ups, shares)]
        kept = max(1, sum(share > 0 for share in shares))  # nobody, where all shares are NaN
        parts = [_parted(up, self.algorithm.unweighted) for up in ups]
        alike = self.algorithm.combine([a for a, _ in parts], [(w > 0) / kept for w in shares])
        mean = self.algorithm.combine([rest for _, rest in parts], shares)
        return mean | alike, weighted_mean(sides, shares), shares


def _parted(record: Struct, names: tuple[str, ...]) -> tuple[Struct, Struct]:
    """The fields with these names, and the others."""
    fields = dict(record.items())
    chosen = {name: fields.pop(name) for name in names}
    return Struct(**chosen), Struct(**fields)


def nbytes(message: Struct) -> int:
    """The size of a message: its vectors as stored, a plain number as 8 bytes."""
    return sum(value.nbytes if isinstance(value, Tensor) else 8 for _, value in message.leaves())


def first_bad(*records: Struct, good: Iterable[Tensor] = ()) -> str | None:
    """The name of the first field with a NaN or Inf in it, `good` ones aside."""
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
    # A sum is quick and finite only if all terms are; large terms alone may also overflow it.
    return math.isfinite(value.sum()) or bool(torch.isfinite(value).all())
