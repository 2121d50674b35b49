"""Replay: any algorithm on fully explicit inputs, with all its state after every round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undrift.batches import Batch, Local
from undrift.config import UndriftError
from undrift.core import Algorithm, Struct
from undrift.data.federated import FederatedData
from undrift.rounds import rounds
from undrift.sampling import Cohort, Sampler, Urn
from undrift.task import Loss, Task


@dataclass(frozen=True)
class Plan:
    """What happens in one round.

    delivers    the clients whose updates arrive; none makes a void round
    registered  the clients that exist in this round; all of them if not given
    batches     for each delivering client, one list of sample positions a local step; clients that
                are left out use all their samples in every step
    """

    delivers: Sequence[int]
    registered: Sequence[int] | None = None
    batches: Mapping[int, Sequence[Sequence[int]]] | None = None


@dataclass(frozen=True)
class Snapshot:
    """The state after a round; arrays and numbers have the names they have in the algorithm.

    x       cloud model                       xbar    aggregate model
    mean    mean update ḡ as the server's rule first sees it, before any rescaling (in FedNova,
            per unit of work); None in a void round
    server  every other server statistic, by dotted path: "h", "c", "stats.m", "server_opt.v",
            "fedglad.B", "fedglad.gsi", "fedglad.factor", ...
    clients the memory of every client, zeros before it first delivers: "h", "t", "a", "c", ...
    dropped clients whose update was not finite, and why
    """

    t: int
    x: np.ndarray
    xbar: np.ndarray
    mean: np.ndarray | None
    server: Mapping[str, Any]
    clients: Mapping[int, Mapping[str, Any]]
    dropped: Mapping[int, str]


def replay(
    algorithm: Algorithm,
    clients: Sequence[tuple[Any, Any]],
    plans: Sequence[Plan],
    *,
    model: str | nn.Module = "softmax",
    loss: str | Loss | None = None,
    start: Any = None,
    groups: Sequence[int] | None = None,
    lr: float = 0.1,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    steps: int | Mapping[int, int] = 1,
    dtype: torch.dtype = torch.float64,
) -> list[Snapshot]:
    """Run an algorithm with nothing left to chance, on the simulator's own code.

    algorithm   an `Algorithm`
    clients     (inputs, targets) of each client; its place is its id
    plans       one `Plan` a round
    model       "softmax" (linear, cross-entropy, labels 0..C-1), "least_squares" (linear, half the
                mean squared error) or any module; parameters are ordered as in the module, weights
                before bias, row by row
    loss        a name or a function of (outputs, targets); needed for your own module only
    start       the start vector; zeros for the ready-made models, else the module's own parameters
    groups      sizes of the parameter groups; one a parameter tensor if not given
    lr          local step size in round t: lr * lr_decay^(t-1)
    weight_decay  coupled L2, added to every gradient
    steps       local steps where a plan gives no batches, one number or one a client
    dtype       float64 unless you ask for another
    """
    data = FederatedData.of_clients(
        [(torch.as_tensor(x).to(dtype), _targets(y, dtype)) for x, y in clients]
    )
    module, named_loss = _model(model, data)
    task = Task(module, loss or named_loss, groups=groups, dtype=dtype)
    if start is not None or isinstance(model, str):
        task.x0 = _start(start, task.x0)
    plans = list(plans)
    for t, plan in enumerate(plans, 1):
        _check(t, plan, len(clients))
    snapshots = []
    everyone, fresh = range(len(clients)), algorithm.init_client(task.x0)
    for round in rounds(
        algorithm,
        task,
        data,
        total=len(plans),
        sampler=_Planned(plans),
        local=_Script(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, plans=plans, work=steps),
        population=lambda t: _or(plans[t - 1].registered, everyone),
    ):
        state = dict(_arrays(round.server))
        snapshots.append(
            Snapshot(
                t=round.t,
                x=state.pop("x"),
                xbar=state.pop("xbar"),
                mean=None if round.mean is None else round.mean.raw.numpy().copy(),
                server=state,
                clients={i: dict(_arrays(round.clients.get(i, fresh))) for i in everyone},
                dropped=dict(round.dropped),
            )
        )
    return snapshots


@dataclass(frozen=True)
class _Planned(Sampler):
    """The cohorts of the plans."""

    plans: Sequence[Plan] = ()

    def draw(self, urn: Urn) -> Cohort:
        return Cohort(tuple(sorted(self.plans[urn.t - 1].delivers)))


@dataclass(frozen=True)
class _Script(Local):
    """The batches of the plans."""

    plans: Sequence[Plan] = ()
    work: int | Mapping[int, int] = 1

    def plan(self, seed: int, t: int, client: int, n: int) -> list[Batch]:
        given = self.plans[t - 1].batches or {}
        if client in given:
            return [np.asarray(batch, dtype=np.int64) for batch in given[client]]
        steps = self.work if isinstance(self.work, int) else self.work[client]
        return [np.arange(n)] * steps


def _or(value: Sequence[int] | None, default: Sequence[int]) -> Sequence[int]:
    return default if value is None else value


def _check(t: int, plan: Plan, clients: int) -> None:
    registered = _or(plan.registered, range(clients))
    for i in [*registered, *plan.delivers]:
        if i not in range(clients):
            raise UndriftError(f"round {t}: there is no client {i}; ids are 0..{clients - 1}")
    if missing := sorted(set(plan.delivers) - set(registered)):
        raise UndriftError(f"round {t}: clients {missing} deliver but are not registered")


def _targets(y: Any, dtype: torch.dtype) -> Tensor:
    targets = torch.as_tensor(y)
    return targets.to(dtype) if targets.is_floating_point() else targets.long()


def _model(model: str | nn.Module, data: FederatedData) -> tuple[nn.Module, str]:
    if isinstance(model, nn.Module):
        return model, "cross_entropy"
    features = data.inputs[0].numel()
    if model == "softmax":
        return nn.Linear(features, int(data.targets.max()) + 1), "cross_entropy"
    if model == "least_squares":
        return nn.Linear(features, 1), "squared_error"
    raise UndriftError(f"model={model!r}: give 'softmax', 'least_squares' or a module")


def _start(start: Any, x0: Tensor) -> Tensor:
    x = torch.zeros_like(x0) if start is None else torch.as_tensor(start).to(x0).clone()
    if x.shape != x0.shape:
        raise UndriftError(f"start has shape {tuple(x.shape)}; the model needs {tuple(x0.shape)}")
    return x


def _arrays(record: Struct) -> Any:
    for name, value in record.leaves():
        yield name, value.numpy().copy() if isinstance(value, Tensor) else value
