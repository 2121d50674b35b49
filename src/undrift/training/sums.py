"""Sums over samples, and the loss and accuracies that follow from them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Rates(NamedTuple):
    """Mean loss, and accuracies in [0, 1]; NaN for what a task does not have."""

    loss: float = math.nan
    accuracy: float = math.nan
    balanced_accuracy: float = math.nan


@dataclass(frozen=True)
class Sums:
    """Total loss and predictions on some samples; those of several sets of samples can be added.

    right  class → correct predictions; if there are no classes, ALL → correct predictions
    total  class → predictions, likewise
    """

    ALL = -1

    loss: float = 0.0
    right: Counter[int] = field(default_factory=Counter)
    total: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.loss + other.loss, self.right + other.right, self.total + other.total)

    @property
    def mean_loss(self) -> float:
        """The loss per prediction."""
        return self.loss / count if (count := self.total.total()) else math.nan

    @property
    def accuracy(self) -> float:
        """The share of correct predictions."""
        return self.right.total() / count if (count := self.total.total()) else math.nan

    @property
    def balanced_accuracy(self) -> float:
        """The mean over classes of the share of correct predictions (recall); classes without
        samples do not count."""
        shares = [self.right[kind] / count for kind, count in self.total.items()]
        return math.fsum(shares) / len(shares) if shares else math.nan
