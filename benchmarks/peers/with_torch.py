"""What the contestants on PyTorch share: models, data, a plain training loop, a step counter."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, TensorDataset
from work import BATCH, DECAY, LR, WORKS, Work


def mlp() -> list[nn.Module]:
    """784-100-100-26."""
    return [nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 26)]


def cnn() -> list[nn.Module]:
    """Two convolutions 5x5 with 64 channels, each pooled, then 384-192-100."""
    convolutions = [nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
    convolutions += [nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    dense = [nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 100)]
    return convolutions + dense


class MLP(nn.Sequential):
    """The model of W1, as a class: some libraries want one."""

    def __init__(self) -> None:
        super().__init__(*mlp())


class CNN(nn.Sequential):
    """The model of W2."""

    def __init__(self) -> None:
        super().__init__(*cnn())


MODELS: dict[str, type[nn.Sequential]] = {"W1": MLP, "W2": CNN}


def model(work: Work) -> nn.Sequential:
    """A seeded model."""
    torch.manual_seed(0)
    return MODELS[work.name]()


@cache
def client(name: str, i: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a client, made once in a process."""
    inputs, targets = WORKS[name].client(i)
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def dead(work: Work, weights: Tensor) -> np.ndarray:
    """Of the first layer's weights, those that read the dead input."""
    return weights.detach()[:, work.dead].numpy()


class Steps:
    """Counts the clients' optimiser steps in this process: theirs are those with weight decay."""

    def __init__(self) -> None:
        self.made = 0
        self.stop = register_optimizer_step_post_hook(self._count).remove

    def _count(self, optimiser: torch.optim.Optimizer, *_: object) -> None:
        self.made += optimiser.param_groups[0]["weight_decay"] == DECAY


def train(local: nn.Module, inputs: Tensor, targets: Tensor, epochs: int) -> None:
    """Local training as most people would write it."""
    optimiser = torch.optim.SGD(local.parameters(), lr=LR, weight_decay=DECAY)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True)
    for _ in range(epochs):
        for some, wanted in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(local(some), wanted).backward()
            optimiser.step()
