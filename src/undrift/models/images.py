"""Convolutional networks.

Max pooling comes before ReLU: the output is the same, and ReLU has a quarter of the work. Images
are stored channels-last, which is faster and does not change the output (see `ChannelsLast`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from undrift.config import UndriftError
from undrift.later import nn
from undrift.models.model import Model, Shape, dense, image, layers


@dataclass(frozen=True)
class AdaBestCNN(Model):
    """AdaBest's network for CIFAR: two 5x5 convolutions with 64 filters, then 384-192-C."""

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        return _two_convolutions(shape, classes, filters=(64, 64), kernel=5, hidden=(384, 192))


@dataclass(frozen=True)
class FedGBOCNN(Model):
    """FedGBO's CNN for CIFAR-100 and FEMNIST: 3x3 convolutions, 32 and 64 filters, then 512-C."""

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        return _two_convolutions(shape, classes, filters=(32, 64), kernel=3, hidden=(512,))


@dataclass(frozen=True)
class FedGLADCNN(Model):
    """FedGLAD's CNN for MNIST and FEMNIST: 3x3 convolutions, 32 and 64 filters, dropout, 128-C."""

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        channels, *sides = image(shape)
        sides = [(side - 4) // 2 for side in sides]
        _refuse_small(shape, sides)
        return nn.Sequential(
            layers.ChannelsLast(),
            *(nn.Conv2d(channels, 32, 3), nn.ReLU()),
            *(nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.25)),
            *(nn.Flatten(), nn.Linear(64 * math.prod(sides), 128), nn.ReLU(), nn.Dropout(0.5)),
            nn.Linear(128, classes),
        )


def _two_convolutions(
    shape: Shape, classes: int, filters: Sequence[int], kernel: int, hidden: Sequence[int]
) -> nn.Module:
    """Convolutions without padding, each with 2x2 max pooling, then dense layers."""
    channels, *sides = image(shape)
    steps: list[nn.Module] = [layers.ChannelsLast()]
    for width in filters:
        steps += [nn.Conv2d(channels, width, kernel), nn.MaxPool2d(2), nn.ReLU()]
        channels, sides = width, [(side - kernel + 1) // 2 for side in sides]
    _refuse_small(shape, sides)
    return nn.Sequential(*steps, nn.Flatten(), *dense(channels * math.prod(sides), classes, hidden))


def _refuse_small(shape: Shape, sides: Sequence[int]) -> None:
    if min(sides) < 1:
        raise UndriftError(
            f"shape={shape}: the images are too small for this network; use MLP or Linear"
        )
