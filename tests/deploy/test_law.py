"""Every algorithm of the table gives the same trajectory deployed and simulated."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.laws.table import TABLE
from undrift.core import Struct
from undrift.data.federated import FederatedData
from undrift.deploy.nodes import Nodes
from undrift.deploy.roster import Entry, Roster
from undrift.engines import Sequential
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import algorithm
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import Explicit, Sampler
from undrift.training.task import Task
from undrift.training.work import Local

pytest.importorskip("flwr", reason="flwr is not installed (undrift[flower])")

from tests.deploy.local_grid import LocalGrid, local_grid, memories

HERE = Path(__file__).parent
LOCAL = Local(lr=0.1, steps=3, batch_size=8)
COHORTS = Explicit(((0, 1, 2, 3, 4), (4, 2, 1, 0), (1, 2, 3, 4)))


@cache
def problem() -> tuple[Experiment, Task, FederatedData]:
    """Five clients with unequal samples; the model has buffers and draws random numbers."""
    experiment = Experiment(
        algorithms=("fedavg",),
        data="synthetic(clients=5)",
        partition="Natural()",
        model=f"{HERE / 'nets.py'}:net",
        local=LOCAL,
        sampler=COHORTS,
    )
    return experiment, *experiment.prepare(0)


def engine(grid: LocalGrid, data: FederatedData, **more: object) -> Nodes:
    """Nodes of the problem that have joined."""
    from undrift.deploy.node import Ask

    experiment, task, _ = problem()
    ask = Ask.about(experiment.plan(0)[0], len(task.x0), 0.0)
    roster = Roster([Entry(f"node-{i}") for i in range(len(data))], run="law")
    made = Nodes(grid, roster, 0.01, 1, lambda text: None, ask, poll=0)
    made = replace(made, **more)
    made.meet_all()
    return made


def bits(record: Struct) -> dict[str, object]:
    return {
        name: value.numpy().tobytes() if isinstance(value, torch.Tensor) else value
        for name, value in record.leaves()
    }


@pytest.mark.parametrize("name", [n for n in TABLE if algorithm(n).regime == "federated"])
def test_deployed_and_simulated_are_the_same(name: str, tmp_path: Path) -> None:
    _, task, data = problem()
    made = algorithm(name)
    nodes = engine(local_grid(data, tmp_path), data)
    there = roster_rounds(made, task, data, nodes)
    here = rounds(made, task, data, total=3, sampler=COHORTS, local=LOCAL, engine=Sequential())
    for deployed, simulated in zip(there, here, strict=True):
        assert deployed.dropped == simulated.dropped == {}
        assert bits(deployed.server) == bits(simulated.server)
        assert torch.equal(deployed.buffers, simulated.buffers)
        for key in ("train_loss", "drift", "gsi", "weights", "bytes_up", "bytes_down", "steps"):
            assert str(getattr(deployed, key)) == str(getattr(simulated, key)), key
    for client, me in simulated.clients.items():
        if list(me.leaves()):
            assert bits(memories(tmp_path, client)[-1]) == bits(me)
            assert deployed.clients[client].accepted == (2 if client == 0 else 3)


def roster_rounds(
    made: object, task: Task, data: FederatedData, nodes: Nodes, sampler: Sampler = COHORTS
) -> list[Round]:
    far = nodes.roster.data(data, nodes.available, measured=False)
    return list(
        rounds(made, task, far, total=3, sampler=sampler, local=LOCAL, engine=nodes)  # type: ignore[arg-type]
    )
