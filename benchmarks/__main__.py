"""One round of undrift beside the same round written as a plain PyTorch loop, interleaved.

The work (W1): ten clients with 1,020 samples each train an MLP 784-100-100-26 for five epochs in
batches of 45, by SGD with weight decay. Medians over repetitions; read the ratio, not the seconds.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from undrift.algorithms import AdaBest, FedAvg
from undrift.batches import Local
from undrift.core import Algorithm
from undrift.data import FederatedData
from undrift.rounds import rounds
from undrift.sampling import Explicit
from undrift.task import Task

CLIENTS, SAMPLES, BATCH, EPOCHS, LR, DECAY = 10, 1020, 45, 5, 0.1, 1e-4


def mlp() -> nn.Module:
    """784-100-100-26."""
    layers = [nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 26)]
    return nn.Sequential(*layers)


def naive(model: nn.Module, clients: list[tuple[Tensor, Tensor]]) -> int:
    """FedAvg as most people would write it. Returns the steps it made."""
    states, steps = [], 0
    for inputs, targets in clients:
        local = copy.deepcopy(model)
        optimiser = torch.optim.SGD(local.parameters(), lr=LR, weight_decay=DECAY)
        loader = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True)
        for _ in range(EPOCHS):
            for some, wanted in loader:
                optimiser.zero_grad()
                nn.functional.cross_entropy(local(some), wanted).backward()
                optimiser.step()
                steps += 1
        states.append(local.state_dict())
    mean = {k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]}
    model.load_state_dict(mean)
    return steps


def ours(algorithm: Algorithm, task: Task, data: FederatedData) -> int:
    """One round of undrift. Returns the steps it made."""
    local = Local(lr=LR, weight_decay=DECAY, batch_size=BATCH, epochs=EPOCHS, batching="keep")
    everyone = Explicit((tuple(range(CLIENTS)),))
    (round,) = rounds(algorithm, task, data, total=1, sampler=everyone, local=local)
    return round.steps


def main(repetitions: int = 5) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    clients = [
        (torch.randn(SAMPLES, 784), torch.randint(0, 26, (SAMPLES,))) for _ in range(CLIENTS)
    ]
    model = mlp()
    task, data = Task(model), FederatedData.of_clients(clients)
    contestants: dict[str, Callable[[], int]] = {
        "naive loop": lambda: naive(model, clients),
        "undrift FedAvg": lambda: ours(FedAvg(), task, data),
        "undrift AdaBest": lambda: ours(AdaBest(), task, data),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    steps: dict[str, int] = {}
    for _ in range(repetitions):
        for name, contestant in contestants.items():
            began = time.perf_counter()
            steps[name] = contestant()
            seconds[name].append(time.perf_counter() - began)
    base = statistics.median(seconds["naive loop"])
    rows = [
        {
            "engine": name,
            "steps": steps[name],
            "seconds": round(statistics.median(times), 3),
            "times naive": round(base / statistics.median(times), 2),
        }
        for name, times in seconds.items()
    ]
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=1))
        return
    print(f"W1, {repetitions} repetitions, one thread, torch {torch.__version__}")
    for row in rows:
        line = "{engine:16} {steps:5} steps {seconds:7.3f} s {times naive:6.2f} x naive"
        print(line.format(**row))


if __name__ == "__main__":
    main()
