"""The papers' networks: functions of one sample's shape and the number of classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from undrift.config import UndriftError

Shape = int | tuple[int, ...]
"""The shape of one sample; a number stands for a flat sample of so many features."""


def mlp(shape: Shape, classes: int, hidden: Sequence[int] = (100, 100)) -> nn.Module:
    """Fully connected layers with ReLU between them; AdaBest's 784-100-100-C for EMNIST-L."""
    features = shape if isinstance(shape, int) else math.prod(shape)
    return nn.Sequential(nn.Flatten(), *_dense(features, classes, hidden))


def linear(shape: Shape, classes: int) -> nn.Module:
    """Softmax regression; on 5000 word counts, FedGBO's model for Sent140."""
    return mlp(shape, classes, hidden=())


def fedgbo_cnn(shape: Shape, classes: int) -> nn.Module:
    """FedGBO's network for CIFAR-100 and FEMNIST: 3x3 convolutions 32 and 64, then 512-C."""
    return _cnn(shape, classes, filters=(32, 64), kernel=3, hidden=(512,))


def adabest_cnn(shape: Shape, classes: int) -> nn.Module:
    """AdaBest's network for CIFAR: two 5x5 convolutions of 64, then 384-192-C."""
    return _cnn(shape, classes, filters=(64, 64), kernel=5, hidden=(384, 192))


def fedgbo_gru(shape: Shape, classes: int) -> nn.Module:
    """FedGBO's network for Shakespeare: from a sequence of `classes` characters, the next one."""
    return Recurrent(classes, embedding=8, hidden=128, layers=2)


class Recurrent(nn.Module):
    """Embedding, GRU layers and a linear layer on the last output."""

    def __init__(self, symbols: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, embedding)
        self.recur = nn.GRU(embedding, hidden, layers, batch_first=True)
        self.classify = nn.Linear(hidden, symbols)

    def forward(self, sequence: Tensor) -> Tensor:
        outputs, _ = self.recur(self.embed(sequence))
        scores: Tensor = self.classify(outputs[:, -1])
        return scores


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {
    model.__name__: model for model in (mlp, linear, fedgbo_cnn, fedgbo_gru, adabest_cnn)
}


def _dense(features: int, classes: int, hidden: Sequence[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(features, width), nn.ReLU()]
        features = width
    return [*layers, nn.Linear(features, classes)]


def _cnn(
    shape: Shape, classes: int, filters: Sequence[int], kernel: int, hidden: Sequence[int]
) -> nn.Module:
    """Convolutions without padding, each halved; ReLU comes last, where a quarter is left of it."""
    if isinstance(shape, int) or len(shape) != 3:
        raise UndriftError(f"shape={shape}: images must have the shape (channels, height, width)")
    channels, *sides = shape
    layers: list[nn.Module] = []
    for width in filters:
        layers += [nn.Conv2d(channels, width, kernel), nn.MaxPool2d(2), nn.ReLU()]
        channels, sides = width, [(side - kernel + 1) // 2 for side in sides]
    if min(sides) < 1:
        raise UndriftError(f"shape={shape}: the images are too small for this network")
    features = channels * math.prod(sides)
    return nn.Sequential(*layers, nn.Flatten(), *_dense(features, classes, hidden))
