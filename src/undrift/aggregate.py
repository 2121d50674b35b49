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


class AllUploads(Mean):
    """Records of an upload and what goes with it, for algorithms that must see all at once."""

    def __init__(self, algorithm: Algorithm, server: Struct) -> None:
        super().__init__()
        self.algorithm, self.server = algorithm, server
        self.records: list[Struct] = []

    def add(self, weight: float, record: Struct) -> None:
        self.weights.append(weight)
        self.records.append(record)

    def result(self) -> Struct:
        ups = [record.up for record in self.records]
        self.weights = self.algorithm.reweigh(self.server, ups, self.shares)
        side = weighted_mean([record.side for record in self.records], self.weights)
        return Struct(up=self.algorithm.combine(ups, self.weights), side=side)


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
