"""What adapters of libraries on PyTorch share: the linear model without bias, its loss, vectors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Linear(nn.Linear):
    """inputs·x in float64."""

    def __init__(self, x0: np.ndarray) -> None:
        super().__init__(len(x0), 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.weight.copy_(torch.from_numpy(x0))


def half_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """½ mean (output − target)²."""
    return 0.5 * ((outputs.squeeze(-1) - targets) ** 2).mean()


def loader(client: Any, batches: Any) -> list[tuple[Tensor, Tensor]]:
    """One pass over a client's mini-batches, in order."""
    pairs = ((client.inputs[rows], client.targets[rows]) for rows in batches)
    return [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in pairs]


def batch_size(batches: Any) -> int:
    """The size of all mini-batches but last ones, for libraries in which all clients share it."""
    size = max(len(rows) for passes in batches for rows in passes)
    if any(len(rows) != size for passes in batches for rows in passes[:-1]):
        raise NotImplementedError("All clients have the same batch size.")
    return size


class ServerOptimiser:
    """For libraries whose server steps with an optimiser of torch, which `begin` gets."""

    def states(self) -> dict[str, np.ndarray]:
        """Statistics of the optimiser, by the names that torch gives them."""
        names = {"momentum_buffer": "m", "exp_avg": "m", "exp_avg_sq": "v", "sum": "v"}
        kept = [one for of_x in self.optimiser().state.values() for one in of_x.items()]
        return {names[name]: value.numpy() for name, value in kept if name in names}


class FedAvgM(ServerOptimiser):
    def start(self, x0: np.ndarray, clients: Any, beta: float, server_lr: float) -> None:
        self.begin(x0, clients, partial(torch.optim.SGD, lr=server_lr, momentum=beta))


class FedAdam(ServerOptimiser):
    def start(
        self, x0: np.ndarray, clients: Any, server_lr: float, beta1: float, beta2: float, eps: float
    ) -> None:
        betas = beta1, beta2
        self.begin(x0, clients, partial(torch.optim.Adam, lr=server_lr, betas=betas, eps=eps))


class FedAdagrad(ServerOptimiser):
    def start(self, x0: np.ndarray, clients: Any, server_lr: float, eps: float) -> None:
        start = {"initial_accumulator_value": eps**2}
        self.begin(x0, clients, partial(torch.optim.Adagrad, lr=server_lr, eps=eps, **start))
