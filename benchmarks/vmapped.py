"""Is `vmap` over clients faster anywhere? `python -m benchmarks.vmapped`

Linear and tiny models, where it is at its best: the local steps of a round as a bare vmapped loop,
with no plans, checks or means, beside whole rounds of the compiled engine and the time that those
spend in local steps. Results go to results/vmapped.json, a table to the terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any
from unittest.mock import patch

import cyclopts
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.measure import circumstances, interleave, store_results
from undrift import FedAvg, Local, Task, rounds
from undrift.data import FederatedData
from undrift.engines import Compiled
from undrift.engines.native.launch import LaunchQueue
from undrift.federation.sampling import Explicit

STEPS, LR = 10, 0.1

MODELS: dict[str, tuple[Callable[[], nn.Module], int, int, int]] = {
    "linear 5000-2, 22 clients, batch 8": (lambda: nn.Linear(5000, 2), 5000, 22, 8),
    "linear 60-10, 100 clients, batch 10": (lambda: nn.Linear(60, 10), 60, 100, 10),
    "MLP 64-32-10, 100 clients, batch 10": (
        lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
        64,
        100,
        10,
    ),
}
"""models, their inputs, clients and batches"""


def train_all(model: nn.Module, x: Tensor, y: Tensor, batch: int, threads: int) -> None:
    """Ten local steps of all clients at once, each on batches of its own."""
    torch.set_num_threads(threads)
    everyone = torch.arange(len(x))[:, None]
    own = {k: p.detach().expand(len(x), *p.shape).clone() for k, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        outputs = functional_call(model, parameters, (inputs,))
        return nn.functional.cross_entropy(outputs, targets)

    gradients = vmap(grad(loss))
    for rows in torch.rand(x.shape[:2]).argsort(1).split(batch, 1):
        found = gradients(own, x[everyone, rows], y[everyone, rows])
        for name, g in found.items():
            own[name].sub_(g, alpha=LR)
    torch.set_num_threads(1)


class Walks:
    """The processor time that all workers spend in local steps."""

    def __init__(self) -> None:
        self.seconds, self._run = 0.0, LaunchQueue.run

    def __call__(self, queue: LaunchQueue) -> None:
        began = time.thread_time()
        self._run(queue)
        self.seconds += time.thread_time() - began


def measure(name: str) -> dict[str, Any]:
    """Milliseconds of a round, and of its local steps alone on one core."""
    make, width, clients, batch = MODELS[name]
    torch.manual_seed(0)
    x = torch.randn(clients, STEPS * batch, width)
    y = torch.randint(2, (clients, STEPS * batch))
    data = FederatedData.of_clients([(x[i], y[i]) for i in range(clients)])
    local = Local(lr=LR, epochs=1, batch_size=batch, batching="keep")
    options = {"sampler": Explicit((range(clients),)), "local": local, "engine": Compiled(2)}
    played = rounds(FedAvg(), Task(make()), data, total=10**9, **options)
    model, walks = make(), Walks()
    contestants = {
        "vmap, 1 thread": lambda: train_all(model, x, y, batch, 1),
        "vmap, 2 threads": lambda: train_all(model, x, y, batch, 2),
        "Compiled, whole round": lambda: next(played),
    }
    with patch.object(LaunchQueue, "run", lambda queue: walks(queue)):
        seconds = interleave(contestants, 20, name)
    ms = {who: round(1000 * median(times), 2) for who, times in seconds.items()}
    steps = 1000 * walks.seconds / len(seconds["Compiled, whole round"])
    return ms | {"Compiled, local steps on 1 core": round(steps, 2)}


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    found = {name: measure(name) for name in MODELS}
    store_results("vmapped", {**circumstances(), "ms": found})
    for name, ms in found.items():
        print(f"{name}: " + ", ".join(f"{who} {value} ms" for who, value in ms.items()))


if __name__ == "__main__":
    cyclopts.run(main)
