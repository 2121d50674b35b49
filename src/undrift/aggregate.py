"""From many uploads to one: weighted means, and checks of what arrives."""

from __future__ import annotations

import torch
from torch import Tensor

from undrift.core import Algorithm, Struct, weighted_mean


class Mean:
    """A weighted mean of records, built up one by one so that none needs to be kept."""

    def __init__(self) -> None:
        self.weights: list[float] = []
        self.total = Struct()

    def add(self, weight: float, record: Struct) -> None:
        scaled = record.map(lambda value: weight * value)
        self.total = self.total.map(lambda a, b: a + b, scaled) if self.weights else scaled
        self.weights.append(weight)

    @property
    def shares(self) -> list[float]:
        """The weights, made to add up to 1."""
        total = sum(self.weights)
        return [weight / total for weight in self.weights]

    def result(self) -> Struct:
        return self.total.map(lambda value: value / sum(self.weights))


class Uploads:
    """The uploads of a round and what goes with each, as one mean."""

    def __init__(self, algorithm: Algorithm, server: Struct) -> None:
        self.algorithm, self.server = algorithm, server
        self.weighted, self.alike = Mean(), Mean()

    def add(self, weight: float, up: Struct, side: Struct) -> None:
        alike, rest = _parted(up, self.algorithm.unweighted)
        self.alike.add(1.0, alike)
        self.weighted.add(weight, Struct(up=rest, side=side))

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

    def result(self) -> tuple[Struct, Struct, list[float]]:
        ups, sides = zip(*self.pairs, strict=True)
        shares = [weight / sum(self.weights) for weight in self.weights]
        shares = [float(share) for share in self.algorithm.reweigh(self.server, ups, shares)]
        kept = sum(share > 0 for share in shares)
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
    return sum(
        value.numel() * value.element_size() if isinstance(value, Tensor) else 8
        for _, value in message.leaves()
    )


def first_bad(record: Struct) -> str | None:
    """The name of the first field with a NaN or Inf in it."""
    for name, value in record.leaves():
        if not bool(torch.isfinite(torch.as_tensor(value)).all()):
            return name
    return None
