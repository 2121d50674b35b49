"""Errors name their client, and interrupts stop an engine at once."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.engines.kinds import (
    federation,
    last,
)
from undrift.algorithms import FedAvg
from undrift.core import Struct
from undrift.data.federated import FederatedData
from undrift.engines import Compiled, Engine, Sequential, Threads
from undrift.engines.native import library
from undrift.engines.native.launch import LaunchQueue
from undrift.engines.native.trainer import CompiledTrainer
from undrift.federation.rounds import rounds
from undrift.federation.sampling import Uniform
from undrift.training.task import Task
from undrift.training.trainer import ClientError, Trainer, Work, client_rounds
from undrift.training.work import Local


@pytest.mark.parametrize("kind", [Sequential, Threads, Compiled])
def test_errors_name_round_client_and_stage(kind: Callable[[], Engine]) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        raise ValueError("no such loss, nor compiled")

    _, data = federation("linear")
    task = Task(nn.Linear(6, 4).double(), loss)
    if kind is Compiled:
        engine = Compiled(2)
        prepared = engine.prepare(task, data, Local())
        assert prepared.about.endswith("a step fails: no such loss, nor compiled")
        assert prepared.rounding == "python"  # which is no matter of how a sentence ends
    with pytest.raises(ClientError, match=r"round 1, client \d, local step 1: no such loss"):
        last(task, data, kind(), FedAvg())


def test_errors_inside_a_block_name_their_client() -> None:
    task, data = federation("linear")
    played = rounds(FedAvg(), task, data, total=9, sampler=Uniform(5), engine=Compiled(1))
    next(played)
    data.targets[data.rows(3)] = 99
    with pytest.raises(ClientError, match=r"round 2, client 3, local steps: .*out of bounds"):
        list(played)


def block_of_clients(task: Task, data: FederatedData) -> Callable[[], object]:
    """What trains five clients in one block, after they have shown that they draw nothing."""
    trainer = CompiledTrainer(task.replica())
    local = Local(batch_size=4, steps=2)
    works = [Work(t=1, client=i, seed=0, data=data, local=local, n_mean=1.0) for i in range(5)]
    clients, down = [(work, Struct()) for work in works], Struct(x=task.x0)
    client_rounds(FedAvg(), trainer, clients, down, task.buffers0)
    return lambda: client_rounds(FedAvg(), trainer, clients, down, task.buffers0)


@pytest.mark.parametrize(("name", "launches"), [("linear", [5]), ("batch norm", [1, 1, 1, 1])])
def test_nobody_trains_twice_to_find_whose_error_it_was(
    name: str, launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, data = federation(name)
    train = block_of_clients(task, data)
    data.targets[data.rows(3)] = 99
    launched, run = [], LaunchQueue.run

    def counted(queue: LaunchQueue) -> None:
        launched.append(len(queue.launches))
        run(queue)

    monkeypatch.setattr(LaunchQueue, "run", counted)
    with pytest.raises(ClientError, match=r"round 1, client 3, local steps: .*out of bounds"):
        train()
    assert [count for count in launched if count] == launches


def test_the_first_client_that_fails_is_named() -> None:
    """Even if a later one fails before anything is launched."""

    def transform(batch: Tensor, rng: np.random.Generator | None) -> Tensor:
        if rng is not None and bool(batch.isnan().any()):
            raise ValueError("a value is missing")
        return batch

    task, data = federation("linear", transform)
    train = block_of_clients(task, data)
    data.inputs[data.rows(3)] = math.nan
    with pytest.raises(ClientError, match="round 1, client 3, local steps: a value is missing"):
        train()
    data.targets[data.rows(1)] = 99
    with pytest.raises(ClientError, match=r"round 1, client 1, local steps: .*out of bounds"):
        train()


def test_other_workers_stop_after_an_error() -> None:
    def job(trainer: Trainer, item: int) -> int:
        if item == 0:
            raise ValueError("broken")
        while not trainer.stop:
            time.sleep(0.001)
        return item

    task, _ = federation("linear")
    with pytest.raises(ValueError, match="broken"):
        list(Threads(2).map(job, task, range(8)))


def test_a_stopped_walk_ends_at_once() -> None:
    task, data = federation("linear")
    trainer = CompiledTrainer(task.replica())
    trainer.stop = torch.ones(1, dtype=torch.uint8)
    work = Work(t=1, client=0, seed=0, data=data, local=Local(), n_mean=1.0)
    with pytest.raises(ClientError, match="round 1, client 0, local steps: stopped"):
        client_rounds(FedAvg(), trainer, [(work, Struct())], Struct(x=task.x0), task.buffers0)


LONG = """
import torch
from dataclasses import dataclass
from undrift import FedAvg, FederatedData, Local, Task, Uniform, rounds
from undrift.engines import Compiled
clients = [(torch.randn(100, 1000), torch.randint(3, (100,))) for _ in range(4)]
data = FederatedData.of_clients(clients)
local = Local(steps=10**5)

@dataclass(frozen=True)
class Told(FedAvg):
    def upload(self, *given):
        print("a client finished", flush=True)
        return super().upload(*given)

engine = Compiled(2)
engine.prepare(Task(torch.nn.Linear(1000, 100)), data, local)
print("ready", flush=True)
for _ in rounds(Told(), Task(torch.nn.Linear(1000, 100)), data, total=1, sampler=Uniform(4),
                local=local, engine=engine):
    pass
"""


def test_ctrl_c_stops_in_the_middle_of_a_client() -> None:
    library.load()
    process = subprocess.Popen(
        [sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)  # it is on its way by now; if not, it stops even so
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate()
    assert "KeyboardInterrupt" in errors
    assert said == ""  # no client had to finish first
