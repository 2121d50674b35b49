"""Replay: runs an algorithm on explicit inputs and returns its state after every round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undrift.config import UndriftError
from undrift.core import Algorithm, Struct
from undrift.data.federated import FederatedData
from undrift.engines import Sequential
from undrift.federation.rounds import rounds
from undrift.federation.sampling import Cohort, Sampler, Urn
from undrift.training.losses import Loss, suitable_loss
from undrift.training.task import Task
from undrift.training.work import Batch, Local


@dataclass(frozen=True)
class Plan:
    """What happens in one round.

    delivers    clients whose updates arrive; may be empty
    registered  clients that exist in this round; all of them if not given
    batches     client → a list of sample positions for each local step; clients that are left out
                use all their samples in every step
    """

    delivers: Sequence[int]
    registered: Sequence[int] | None = None
    batches: Mapping[int, Sequence[Sequence[int]]] | None = None


@dataclass(frozen=True)
class Snapshot:
    """The state after a round, with the names that the algorithm uses.

    x       cloud model                       xbar    aggregate model
    mean    mean update ḡ before any rescaling (in FedNova, per unit of work); None if no client
            delivered
    buffers the model's buffers (BatchNorm's running statistics) as one vector
    server  every other server statistic, by dotted path: "h", "c", "stats.m", "server_opt.v",
            "fedglad.B", "fedglad.gsi", "fedglad.factor", ...
    clients the memory of every client, as `init_client` until it delivers: "h", "t", "a", "c", ...
    dropped clients whose update was not finite → the reason
    """

    t: int
    x: np.ndarray
    xbar: np.ndarray
    mean: np.ndarray | None
    buffers: np.ndarray
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
    """Run an algorithm without any randomness, with the code that experiments use.

    algorithm   an `Algorithm`
    clients     (inputs, targets) of each client; its index is its id
    plans       one `Plan` per round
    model       "softmax" (linear, cross-entropy, labels 0..C-1), "least_squares" (linear, half the
                mean squared error) or any module; parameters are ordered as in the module, weights
                before bias, row by row
    loss        a name or a function of (outputs, targets); if not given, cross-entropy for integer
                targets, else half the mean squared error
    start       initial parameters; zeros for the models by name, else those of the module
    groups      sizes of the parameter groups; one per parameter tensor if not given
    lr          local step size in round t: lr * lr_decay^(t-1)
    weight_decay  coupled L2, added to every gradient
    steps       local steps of clients without batches: a number, or client → number (else 1)
    dtype       of all computations
    """
    if not isinstance(algorithm, Algorithm):
        raise UndriftError(f"{algorithm!r} is not an algorithm; undrift.algorithm(...) makes one")
    ready_made = isinstance(model, str)
    data = FederatedData.of_clients(
        [
            (_tensor(x, dtype, cast=ready_made), _tensor(y, dtype, cast=model == "least_squares"))
            for x, y in clients
        ]
    )
    task = Task(
        _model(model, data), loss or suitable_loss(data.targets), groups=groups, dtype=dtype
    )
    if start is not None or ready_made:
        task.x0 = _start(start, task.x0)
    work = _steps(steps, len(clients))
    for t, plan in enumerate(plans, 1):
        _check(t, plan, data.sizes)
    snapshots = []
    everyone, fresh = range(len(clients)), algorithm.init_client(task.x0)
    for round in rounds(
        algorithm,
        task,
        data,
        total=len(plans),
        sampler=_Planned(plans),
        local=_Script(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, plans=plans, work=work),
        population=lambda t: _or(plans[t - 1].registered, everyone),
        engine=Sequential(),
    ):
        state = dict(_arrays(round.server))
        snapshots.append(
            Snapshot(
                t=round.t,
                x=state.pop("x"),
                xbar=state.pop("xbar"),
                mean=None if round.mean is None else round.mean.raw.numpy().copy(),
                buffers=round.buffers.numpy().copy(),
                server=state,
                clients={i: dict(_arrays(round.clients.get(i, fresh))) for i in everyone},
                dropped=dict(round.dropped),
            )
        )
    return snapshots


@dataclass(frozen=True)
class _Planned(Sampler):
    """Draws the cohorts of the plans."""

    plans: Sequence[Plan] = ()

    def draw(self, urn: Urn) -> Cohort:
        return Cohort(tuple(sorted(self.plans[urn.t - 1].delivers)))


@dataclass(frozen=True)
class _Script(Local):
    """Uses the batches of the plans."""

    plans: Sequence[Plan] = ()
    work: Sequence[int] = ()

    def plan(self, seed: int, t: int, client: int, n: int) -> list[Batch]:
        if self.steps is not None:  # all clients' samples in one place
            return [np.arange(n)] * self.steps
        given = self.plans[t - 1].batches or {}
        if client in given:
            return [np.asarray(batch, dtype=np.int64) for batch in given[client]]
        return [np.arange(n)] * self.work[client]


def _or(value: Sequence[int] | None, default: Sequence[int]) -> Sequence[int]:
    return default if value is None else value


def _check(t: int, plan: Plan, sizes: np.ndarray) -> None:
    """Raise if a plan is inconsistent."""
    clients = len(sizes)
    registered = _or(plan.registered, range(clients))
    batches = plan.batches or {}
    for i in [*registered, *plan.delivers, *batches]:
        if i not in range(clients):
            raise UndriftError(f"round {t}: there is no client {i}; ids are 0..{clients - 1}")
    if missing := sorted(set(plan.delivers) - set(registered)):
        raise UndriftError(f"round {t}: clients {missing} deliver but are not registered")
    if len(set(plan.delivers)) < len(plan.delivers):
        raise UndriftError(f"round {t}: a client delivers twice in {list(plan.delivers)}")
    if idle := sorted(set(batches) - set(plan.delivers)):
        raise UndriftError(f"round {t}: clients {idle} have batches but do not deliver")
    for i, steps in batches.items():
        positions = [position for batch in steps for position in batch]
        if not positions or min(map(len, steps)) == 0:
            raise UndriftError(f"round {t}, client {i}: a local step needs at least one sample")
        if min(positions) < 0 or max(positions) >= sizes[i]:
            raise UndriftError(
                f"round {t}, client {i}: positions of samples are 0..{sizes[i] - 1}, "
                f"found {min(positions)}..{max(positions)}"
            )


def _steps(steps: int | Mapping[int, int], clients: int) -> list[int]:
    """The number of local steps of each client without batches."""
    each = {i: steps.get(i, 1) if isinstance(steps, Mapping) else steps for i in range(clients)}
    for i, count in each.items():
        if not isinstance(count, int | np.integer) or count < 1:
            raise UndriftError(f"steps={count!r} for client {i}: must be a whole number >= 1")
    return [int(count) for count in each.values()]


def _tensor(values: Any, dtype: torch.dtype, cast: bool = False) -> Tensor:
    """Values as a tensor: floats as `dtype`, integers as int64 unless `cast`."""
    tensor = torch.as_tensor(values)
    return tensor.to(dtype) if cast or tensor.is_floating_point() else tensor.long()


def _model(model: str | nn.Module, data: FederatedData) -> nn.Module:
    if isinstance(model, nn.Module):
        return model
    features = data.inputs[0].numel()
    if model == "softmax":
        return nn.Linear(features, int(data.targets.max()) + 1)
    if model == "least_squares":
        return nn.Linear(features, 1)
    raise UndriftError(f"model={model!r}: give 'softmax', 'least_squares' or a module")


def _start(start: Any, x0: Tensor) -> Tensor:
    x = torch.zeros_like(x0) if start is None else torch.as_tensor(start).to(x0).clone()
    if x.shape != x0.shape:
        raise UndriftError(f"start has shape {tuple(x.shape)}; the model needs {tuple(x0.shape)}")
    return x


def _arrays(record: Struct) -> Any:
    for name, value in record.leaves():
        yield name, value.numpy().copy() if isinstance(value, Tensor) else value
