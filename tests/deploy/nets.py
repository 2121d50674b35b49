"""A network with buffers and random numbers."""

from torch import nn


def net(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(shape[0], 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(8, classes),
    )
