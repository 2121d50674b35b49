"""What makes a network: a checked value that names itself, such as `MLP(hidden=(100, 100))`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from undrift.config import Config, UndriftError
from undrift.later import Later, nn

if TYPE_CHECKING:
    from undrift.models import layers as layers
else:
    layers = Later("undrift.models.layers")

Shape = int | tuple[int, ...]
"""The shape of one sample; a number stands for a flat sample of so many features."""

PAD = 0
"""The number that fills up short texts."""


@dataclass(frozen=True)
class Model(Config):
    """A kind of network. Subclass it to use a network of your own wherever one is named."""

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        """The network, with new parameters from torch's global generator.

        shape    the shape of one sample as the network gets it
        classes  the number of scores it gives: classes, or symbols where it predicts the next one
        words    what the numbers in a text stand for, where the samples are texts and this is known
        """
        raise NotImplementedError


def features(shape: Shape) -> int:
    """The numbers in one sample."""
    return shape if isinstance(shape, int) else math.prod(shape)


def image(shape: Shape) -> tuple[int, int, int]:
    """Channels, height and width of an image."""
    if isinstance(shape, int) or len(shape) != 3:
        raise UndriftError(f"shape={shape}: images must have the shape (channels, height, width)")
    channels, height, width = shape
    return channels, height, width


def dense(inputs: int, outputs: int, hidden: Sequence[int] = ()) -> list[nn.Module]:
    """Fully connected layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return [*layers, nn.Linear(inputs, outputs)]
