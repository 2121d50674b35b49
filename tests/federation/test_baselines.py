"""The baselines beside a federation: all samples in one place, and every client alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from undrift.data.federated import FederatedData
from undrift.engines import Compiled, Engine, Sequential
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import MD, Bernoulli, Explicit, Sampler, Uniform
from undrift.training.task import Task
from undrift.training.work import Local

EVERYBODY = Bernoulli(1.0)
BATCHINGS = ("bootstrap", "wrap", "drop", "keep", "full")


def clients(*sizes: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.normal(i / 3, 1.0, (n, 3)), rng.integers(0, 2, n)) for i, n in enumerate(sizes)]


def play(
    name: str,
    pairs: list[tuple[np.ndarray, np.ndarray]],
    local: Local,
    sampler: Sampler = EVERYBODY,
    total: int = 4,
    **options: Any,
) -> Round:
    """The last round, of a model with running statistics."""
    torch.manual_seed(0)
    task = Task(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), dtype=torch.float64)
    data = FederatedData.of_clients(pairs)
    made = algorithm(name)
    *_, last = rounds(made, task, data, total=total, sampler=sampler, local=local, **options)
    return last


def same(one: Tensor, other: Tensor, tolerance: float = 1e-12) -> bool:
    return torch.allclose(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("engine", [Sequential(), Compiled(2)])
def test_with_one_client_all_three_agree(batching: str, engine: Engine) -> None:
    local = Local(lr=0.2, lr_decay=0.9, weight_decay=0.01, batch_size=4, batching=batching)
    central, federated, alone = (
        play(name, clients(11), local, engine=engine)
        for name in ("centralised", "fedavg", "local-only")
    )
    assert torch.equal(central.server.x, federated.server.x)
    assert torch.equal(central.buffers, federated.buffers)
    assert central.train_loss == federated.train_loss
    assert (central.steps, central.samples) == (federated.steps, federated.samples)
    assert same(alone.clients[0].y, federated.server.x)
    assert same(alone.clients[0].buffers, federated.buffers)


def test_alone_with_full_participation_is_a_run_for_each_client() -> None:
    pairs, local = clients(6, 9, 7), Local(lr=0.2, steps=3, batching="full")
    together = play("local-only", pairs, local)
    for i, pair in enumerate(pairs):
        single = play("fedavg", [pair], local)
        assert same(together.clients[i].y, single.server.x)
        assert same(together.clients[i].buffers, single.buffers)


def test_who_is_not_drawn_does_not_train_and_nobody_sends() -> None:
    local = Local(steps=2, batch_size=3)
    sampler = Explicit(((0, 2), (2,)))
    first, last = (
        play("local-only", clients(6, 9, 7), local, sampler, total=total) for total in (1, 2)
    )
    assert set(last.clients) == {0, 2}
    assert torch.equal(first.clients[0].y, last.clients[0].y)
    assert not same(first.clients[2].y, last.clients[2].y)
    assert torch.equal(first.server.x, last.server.x)
    assert last.bytes_down == last.bytes_up == 0


@pytest.mark.parametrize("sampler", [Uniform(2), MD(3), EVERYBODY])
@pytest.mark.parametrize("options", [{"epochs": 2.0}, {"steps": 3}])
def test_centralised_takes_the_steps_of_the_cohort(sampler: Sampler, options: Any) -> None:
    local = Local(batch_size=4, **options)
    pairs = clients(6, 9, 7, 8)
    central, federated = (
        play(name, pairs, local, sampler, dropout=0.2) for name in ("centralised", "fedavg")
    )
    assert (central.steps, central.samples) == (federated.steps, federated.samples)
    assert central.bytes_down == central.bytes_up == 0


def test_centralised_draws_from_the_samples_of_all_clients() -> None:
    """A step over all samples is that of one client that has them all, in one order."""
    pairs, local = clients(6, 9, 7), Local(lr=0.2, steps=1, batching="full")
    inputs, targets = (np.concatenate(column) for column in zip(*pairs, strict=True))
    central = play("centralised", pairs, local, Uniform(1))
    assert same(central.server.x, play("fedavg", [(inputs, targets)], local).server.x)


def test_centralised_waits_where_nobody_would_deliver() -> None:
    pairs, local = clients(6, 9), Local(steps=1)
    none = play("centralised", pairs, local, total=1, dropout=0.999)
    assert none.delivered == ()
    assert none.steps == 0
