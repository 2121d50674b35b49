"""The first ten EMNIST letters, made small: principal components or images of 14 x 14 pixels.

Both have the first 1,100 training images of each letter in the files that are found, or fewer, and
all test images of these letters. `./letters.py:components` and `./letters.py:images` are data sets.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from undrift.data.own import from_arrays
from undrift.data.source import Source
from undrift.data.sources.emnist import EMNIST

LETTERS = 10
OF_EACH = 1100


@cache
def pixels(of_each: int = OF_EACH) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, test images and labels; pixels from 0 to 1."""
    source = EMNIST("letters", first=LETTERS).load(0)
    kept = [torch.nonzero(source.targets == k)[:of_each, 0] for k in range(LETTERS)]
    rows = torch.cat(kept).sort().values
    x, y = source.inputs[rows].float() / 255, source.targets[rows]
    return x, y, source.test_inputs.float() / 255, source.test_targets


@cache
def components(width: int = 40) -> Source:
    """The first principal components of the images, scaled by one number to unit variance."""
    x, y, test_x, test_y = pixels()
    x, test_x = x.flatten(1), test_x.flatten(1)
    centre = x.mean(0)
    _, _, axes = torch.linalg.svd(x - centre, full_matrices=False)
    train, test = ((part - centre) @ axes[:width].T for part in (x, test_x))
    scale = train.std()
    return from_arrays(train / scale, y, test=(test / scale, test_y), classes=LETTERS)


@cache
def images(of_each: int = OF_EACH) -> Source:
    """Images of 14 x 14 pixels, each the mean of four, with mean 0 and standard deviation 1."""
    x, y, test_x, test_y = pixels(of_each)
    train, test = (nn.functional.avg_pool2d(part, 2) for part in (x, test_x))
    mean, scale = train.mean(), train.std()
    test = (test - mean) / scale
    return from_arrays((train - mean) / scale, y, test=(test, test_y), classes=LETTERS)


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Two 3x3 convolutions of 8 and 16 channels, each in steps of 2, and one dense layer."""
    return nn.Sequential(
        *(nn.Conv2d(shape[0], 8, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16 * 16, classes)),
    )
