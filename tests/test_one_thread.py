"""Bits do not depend on how many threads torch has, and the user's setting is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from undrift.config import UndriftError
from undrift.data.federated import FederatedData
from undrift.engines import Engine, Sequential, Threads
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import rounds
from undrift.runs.runner import run
from undrift.runs.trial import Trial
from undrift.training.task import Task
from undrift.training.work import Local

COUNTS = (1, 2, 3)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def problem() -> tuple[Task, FederatedData]:
    """Large enough for torch to use several threads."""
    torch.manual_seed(0)
    clients = [(torch.randn(4, 2000), torch.randint(50, (4,))) for _ in range(3)]
    return Task(nn.Linear(2000, 50)), FederatedData.of_clients(clients)


@pytest.mark.parametrize("engine", [Sequential(), Threads(2)], ids=lambda e: type(e).__name__)
def test_rounds(engine: Engine) -> None:
    found: list[Any] = []
    for count in COUNTS:
        torch.set_num_threads(count)
        played = rounds(
            algorithm("IDA(FedDyn())"), *problem(), total=2, local=Local(steps=2), engine=engine
        )
        for round in played:
            assert torch.get_num_threads() == count
            one = round
        assert torch.get_num_threads() == count
        vectors = [one.server.x.numpy().tobytes(), one.server.h.numpy().tobytes()]
        found.append([*vectors, one.drift, one.gsi, one.train_loss])
    assert found[1:] == found[:1] * 2


def test_an_experiment(tmp_path: Path) -> None:
    made = Experiment(
        algorithms=["feddyn"],
        data="digits",
        partition="IID(clients=20)",
        model="MLP(hidden=(500,))",
        local=Local(steps=1),
        sampler="Uniform(3)",
        rounds=2,
        every=1,
    )
    rows, files = [], []
    for count in COUNTS:
        torch.set_num_threads(count)
        folder = tmp_path / str(count)
        for event in run(made, folder, engine="sequential"):
            assert torch.get_num_threads() == count, event
        files.append([path.read_bytes() for path in (folder / "models").iterdir()])
        prepared = made.prepare(0)
        trials = Trial(made, made.algorithms[0], 0, *prepared, Sequential()).rows()
        rows.append([{k: str(v) for k, v in row.items() if k != "seconds"} for row in trials])
        assert torch.get_num_threads() == count
    assert files[1:] == files[:1] * 2
    assert rows[1:] == rows[:1] * 2


def test_loops_that_end_early() -> None:
    torch.set_num_threads(2)
    with pytest.raises(UndriftError, match="dropout"):
        next(rounds(algorithm("fedavg"), *problem(), total=1, dropout=2))
    assert torch.get_num_threads() == 2
    left = rounds(algorithm("fedavg"), *problem(), total=2, engine=Sequential())
    next(left)
    left.close()
    assert torch.get_num_threads() == 2
