"""Small federations for tests of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from undrift.data.federated import FederatedData
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import Round, State, rounds
from undrift.federation.sampling import Bernoulli, Sampler
from undrift.training.task import Task
from undrift.training.work import Local

SIZES = (4, 7, 5, 9, 6)
EVERYBODY = Bernoulli(1.0)
FULL = Local(lr=0.1, steps=2, batching="full")
SMALL = Local(lr=0.1, batch_size=3, epochs=1)


def clients(sizes: Sequence[int] = SIZES, dim: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.normal(i / 3, 1.0, (n, dim)), rng.normal(i, 1.0, n)) for i, n in enumerate(sizes)]


def run(
    name: str,
    *,
    pairs: Sequence[Any] | None = None,
    model: nn.Module | None = None,
    loss: Any = "squared_error",
    total: int = 4,
    sampler: Sampler = EVERYBODY,
    local: Local = FULL,
    **options: Any,
) -> list[Round]:
    torch.manual_seed(0)
    task = Task(model or nn.Linear(3, 1, bias=False), loss, dtype=torch.float64)
    data = FederatedData.of_clients(pairs or clients())
    made = algorithm(name)
    return list(rounds(made, task, data, total=total, sampler=sampler, local=local, **options))


def vectors(state: State) -> dict[str, Any]:
    memories = {f"{i}.{k}": v for i, me in state.clients.items() for k, v in me.leaves()}
    return {**dict(state.server.leaves()), **memories, "attention": state.attention, "t": state.t}


def same_bits(a: State, b: State) -> None:
    one, two = vectors(a), vectors(b)
    assert set(one) == set(two)
    for name, value in one.items():
        assert np.array_equal(value, two[name]) or value is two[name], name


def gap(a: Any, b: Any) -> float:
    return 0.0 if a is b is None else float(np.abs(np.asarray(a) - np.asarray(b)).max())
