"""A small federation for every kind of model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undrift.algorithms import AdaBest
from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.engines import Engine
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import Uniform
from undrift.training.task import Task
from undrift.training.work import Local

SAMPLES = 11


class Last(nn.Module):
    """The last step of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)[0][:, -1]
        return found


class Tied(nn.Module):
    """The same matrix in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 6)
        self.scores = nn.Linear(6, 9, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.scores(self.words(x).mean(1))
        return found


def rows(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(SAMPLES, *shape, dtype=torch.float64)


def words() -> Tensor:
    return torch.randint(9, (SAMPLES, 5))


def images(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *layers, nn.Flatten(), nn.LazyLinear(4))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Linear(6, 4), rows(6)),
    "linear, no bias": (lambda: nn.Linear(37, 7, bias=False), rows(37)),
    "linear, many outputs": (lambda: nn.Linear(6, 12), rows(6)),
    "flattened": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(40, 4)), rows(5, 8)),
    "mlp, dropout": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 4)),
        rows(6),
    ),
    "in place": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 4)),
        rows(6),
    ),
    "norms": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)),
        rows(6),
    ),
    "cnn": (lambda: images(nn.ReLU(), nn.MaxPool2d(2)), rows(3, 8, 8)),
    "batch norm": (lambda: images(nn.BatchNorm2d(4), nn.ReLU()), rows(3, 8, 8)),
    "group norm": (lambda: images(nn.GroupNorm(2, 4), nn.AvgPool2d(2)), rows(3, 8, 8)),
    "gru": (
        lambda: nn.Sequential(Last(nn.GRU(6, 5, 2, batch_first=True)), nn.Linear(5, 4)),
        rows(7, 6),
    ),
    "lstm": (
        lambda: nn.Sequential(
            Last(nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True, dropout=0.3)),
            nn.Linear(10, 4),
        ),
        rows(7, 6),
    ),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(9, 6), nn.Flatten(), nn.Linear(30, 4)),
        words,
    ),
    "tied": (Tied, words),
    "transformer": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(6, 2, 12, dropout=0.1, batch_first=True),
            nn.Flatten(),
            nn.Linear(42, 4),
        ),
        rows(7, 6),
    ),
}


def federation(name: str, transform: Any = None) -> tuple[Task, FederatedData]:
    torch.manual_seed(0)
    build, sample = MODELS[name]
    model = build().double()
    model(sample())  # gives lazy layers their shape
    clients = [(sample(), torch.randint(4, (SAMPLES,))) for _ in range(5)]
    inputs, targets = (torch.cat(parts) for parts in zip(*clients, strict=True))
    order, offsets = np.arange(len(targets)), SAMPLES * np.arange(6)
    data = FederatedData(inputs, targets, order, offsets, inputs, targets, transform)
    return Task(model), data


def last(
    task: Task, data: FederatedData, engine: Engine, algorithm: Algorithm | None = None
) -> Round:
    *_, end = rounds(
        algorithm or AdaBest(mu=0.1),
        task,
        data,
        total=2,
        sampler=Uniform(4),
        local=Local(lr=0.05, weight_decay=0.01, batch_size=4, epochs=2, batching="keep"),
        engine=engine,
    )
    return end


def gap(a: Round, b: Round) -> float:
    pairs = [(a.server.x, b.server.x), (a.buffers, b.buffers)]
    return max(float((one - two).abs().max()) for one, two in pairs if one.numel())
