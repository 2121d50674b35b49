"""The work that is measured: W1 to W6, and the plain PyTorch loop that does the same.

Every workload is one round in which all clients make whole epochs over random samples of the right
kind. Times depend on shapes alone, so nothing has to be learned.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from undrift.data import FederatedData
from undrift.models import AdaBestCNN, FedGBOGRU, ResNet56
from undrift.training.work import Local

Samples = tuple[Tensor, Tensor]
"""Inputs and targets."""

SYMBOLS = 79


@dataclass(frozen=True)
class Workload:
    """One round of a federation.

    textbook   the model as anybody would write it
    sample     draws so many samples for it
    must, aim  times the naive loop's speed that the fastest engine has to reach
    own        undrift's own model of the same function, parameters in the same order, if it has one
    loss       undrift's name of the cross-entropy that fits the targets
    """

    name: str
    about: str
    textbook: Callable[[], nn.Module]
    sample: Callable[[int], Samples]
    clients: int
    samples: int
    local: Local
    must: float
    aim: float
    own: Callable[[], nn.Module] | None = None
    loss: str = "cross_entropy"

    @property
    def epochs(self) -> int:
        """Passes of each client over its samples."""
        return int(self.local.epochs or 1)

    @property
    def steps(self) -> int:
        """Local steps of all clients together."""
        return self.clients * self.epochs * math.ceil(self.samples / self.local.batch_size)

    def models(self) -> tuple[nn.Module, nn.Module]:
        """The textbook's model and ours, with the same parameters."""
        torch.manual_seed(0)
        theirs = self.textbook()
        ours = self.own() if self.own else theirs
        with torch.no_grad():
            for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
                mine.copy_(other)
        return theirs, ours

    def data(self) -> FederatedData:
        """The samples of all clients, each with as many as the others."""
        torch.manual_seed(0)
        inputs, targets = self.sample(self.clients * self.samples)
        order = torch.arange(len(targets)).numpy()
        offsets = self.samples * torch.arange(self.clients + 1).numpy()
        return FederatedData(inputs, targets, order, offsets, inputs[:0], targets[:0])


def naive(work: Workload, model: nn.Module, clients: Sequence[Samples]) -> int:
    """FedAvg as most people would write it. Returns the steps it made."""
    states, steps = [], 0
    for inputs, targets in clients:
        local = copy.deepcopy(model)
        optimiser = torch.optim.SGD(
            local.parameters(), lr=work.local.lr, weight_decay=work.local.weight_decay
        )
        loader = DataLoader(
            TensorDataset(inputs, targets), batch_size=work.local.batch_size, shuffle=True
        )
        for _ in range(work.epochs):
            for some, wanted in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(local(some), wanted).backward()
                optimiser.step()
                steps += 1
        states.append(local.state_dict())
    mean = {k: torch.stack([s[k].float() for s in states]).mean(0) for k in states[0]}
    model.load_state_dict(mean)
    return steps


def mlp() -> nn.Module:
    """784-100-100-26."""
    layers = [nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 26)]
    return nn.Sequential(*layers)


def cnn() -> nn.Module:
    """Two 5x5 convolutions of 64, each halved, then 384-192-100."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1600, 384), nn.ReLU()),
        *(nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 100)),
    )


class CharGRU(nn.Module):
    """From a sequence of characters, the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, 8)
        self.recur = nn.GRU(8, 128, 2, batch_first=True)
        self.classify = nn.Linear(128, SYMBOLS)

    def forward(self, sequence: Tensor) -> Tensor:
        outputs, _ = self.recur(self.embed(sequence))
        return self.classify(outputs[:, -1])


class Residual(nn.Module):
    """What its layers add to their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def residual_mlp() -> nn.Module:
    """784-128, three residual blocks with LayerNorm and dropout, 26."""
    blocks = [
        Residual(
            *(nn.LayerNorm(128), nn.Linear(128, 256), nn.GELU()),
            *(nn.Dropout(0.1), nn.Linear(256, 128)),
        )
        for _ in range(3)
    ]
    return nn.Sequential(nn.Linear(784, 128), *blocks, nn.LayerNorm(128), nn.Linear(128, 26))


class Attention(nn.Module):
    """Causal attention with four heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (
            part.view(n, length, 4, width // 4).transpose(1, 2)
            for part in self.enter(x).chunk(3, dim=-1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.leave(mixed.transpose(1, 2).reshape(n, length, width))


class GPT(nn.Module):
    """After each of 64 characters the next: two blocks of width 64."""

    def __init__(self, width: int = 64, context: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, width)
        self.place = nn.Parameter(0.02 * torch.randn(context, width))
        blocks: list[nn.Module] = []
        for _ in range(2):
            wide = (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            blocks += [Residual(nn.LayerNorm(width), Attention(width))]
            blocks += [Residual(nn.LayerNorm(width), *wide)]
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(width), nn.Linear(width, SYMBOLS))

    def forward(self, sequence: Tensor) -> Tensor:
        return self.blocks(self.embed(sequence) + self.place).transpose(1, 2)


def resnet() -> nn.Module:
    """ResNet-56 for ten classes, as undrift lays it out."""
    return ResNet56().build((3, 32, 32), 10)


def plain_resnet() -> nn.Module:
    """The same network without undrift's layout of images."""
    return nn.Sequential(*list(resnet())[1:])


def rows(n: int) -> Samples:
    """Rows of 784 numbers, 26 classes."""
    return torch.randn(n, 784), torch.randint(26, (n,))


def images(n: int, classes: int) -> Samples:
    """Small colour images."""
    return torch.randn(n, 3, 32, 32), torch.randint(classes, (n,))


def texts(n: int) -> Samples:
    """Eighty characters, and the one that follows."""
    return torch.randint(SYMBOLS, (n, 80)), torch.randint(SYMBOLS, (n,))


def shifted_texts(n: int) -> Samples:
    """Sixty-four characters, and what follows each."""
    text = torch.randint(SYMBOLS, (n, 65))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def word_counts(n: int) -> Samples:
    """Counts of 5000 words in short messages, two classes."""
    return torch.poisson(torch.full((n, 5000), 0.003)), torch.randint(2, (n,))


def epochs(count: int, batch_size: int, lr: float = 0.1) -> Local:
    """Local work: whole passes, the last batch may be smaller."""
    return Local(lr=lr, weight_decay=1e-4, batch_size=batch_size, epochs=count, batching="keep")


WORKLOADS = {
    work.name: work
    for work in (
        Workload(
            "W1", "MLP 784-100-100-26", mlp, rows,
            clients=10, samples=1020, local=epochs(5, batch_size=45), must=6, aim=8,
        ),
        Workload(
            "W2", "CNN 5×5×64, 5×5×64, 384-192-100", cnn, lambda n: images(n, 100),
            clients=10, samples=450, local=epochs(1, batch_size=45), must=2.4, aim=2.8,
            own=lambda: AdaBestCNN().build((3, 32, 32), 100),
        ),
        Workload(
            "W3", "char GRU 2 × 128, sequences of 80", CharGRU, texts,
            clients=7, samples=320, local=epochs(1, batch_size=32), must=2.4, aim=4,
            own=lambda: FedGBOGRU().build(80, SYMBOLS),
        ),
        Workload(
            "W4", "linear 5000-2 on word counts", lambda: nn.Linear(5000, 2), word_counts,
            clients=22, samples=80, local=epochs(1, batch_size=8), must=6, aim=20,
        ),
        Workload(
            "W5", "residual MLP with LayerNorm and dropout", residual_mlp, rows,
            clients=10, samples=640, local=epochs(5, batch_size=32), must=3, aim=5,
        ),
        Workload(
            "W6-GPT", "causal transformer, 2 blocks of 64", GPT, shifted_texts,
            clients=10, samples=320, local=epochs(1, batch_size=16), must=1.8, aim=2.2,
            loss="next_token",
        ),
        Workload(
            "W6-ResNet", "ResNet-56 with BatchNorm", plain_resnet, lambda n: images(n, 10),
            clients=4, samples=96, local=epochs(1, batch_size=32), must=1.8, aim=2.2, own=resnet,
        ),
    )
}  # fmt: skip
