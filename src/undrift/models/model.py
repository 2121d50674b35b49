"""Base class of networks that experiments name, such as `MLP(hidden=(100, 100))`."""

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
"""Shape of one sample; an int is the number of features of a flat sample."""

PAD = 0
"""Token id that pads short texts."""


@dataclass(frozen=True)
class Model(Config):
    """Settings of a network. Subclass it to use your own network in an experiment."""

    def build(self, shape: Shape, classes: int, words: Sequence[str] = ()) -> nn.Module:
        """The network, with initial parameters drawn from torch's global generator.

        shape    shape of one sample as the network gets it
        classes  number of scores: classes, or size of the vocabulary for next-token prediction
        words    the word of each token id, where samples are texts and their words are known
        """
        raise NotImplementedError


def features(shape: Shape) -> int:
    """Number of features of one sample."""
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
