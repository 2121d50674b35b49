"""Networks for flat samples: feature vectors, word counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undrift.config import wholes
from undrift.later import nn
from undrift.models.model import Model, Shape, dense, features, layers


@dataclass(frozen=True)
class MLP(Model):
    """Fully connected layers with ReLU between them; AdaBest's 784-100-100-C for EMNIST-L."""

    hidden: tuple[int, ...] = wholes((100, 100), ge=1)

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        return nn.Sequential(layers.Flat(), *dense(features(shape), classes, self.hidden))


@dataclass(frozen=True)
class Linear(Model):
    """Softmax or least squares regression; on 5000 word counts, FedGBO's model for Sent140."""

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        return nn.Sequential(layers.Flat(), *dense(features(shape), classes))
