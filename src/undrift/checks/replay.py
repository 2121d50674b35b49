"""Replay: runs an algorithm on explicit inputs and returns its state after every round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undrift.algorithms.fedgbo import FedGBO
from undrift.checks.plan import Plan, check_plan, local_steps
from undrift.config import UndriftError, shortened
from undrift.core import Algorithm, Part, Struct
from undrift.data.federated import FederatedData
from undrift.engines import Engine, Sequential
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import Cohort, Sampler, Urn
from undrift.training.losses import Loss, suitable_loss
from undrift.training.task import Task
from undrift.training.work import Batch, Local


@dataclass(frozen=True)
class Snapshot:
    """The state after a round, with the names that the algorithm uses.

    x       cloud model                       xbar    aggregate model
    mean    mean update ḡ before any rescaling (in FedNova, per unit of work); None if no client
            delivered
    buffers the model's buffers (BatchNorm's running statistics) as one vector
    server  every other server statistic, by dotted path: "h", "c", "stats.m", "server_opt.v",
            "fedglad.B", "fedglad.gsi", "fedglad.factor", ...; the last two are NaN if no client
            delivered
    used    what the server's update used beside `mean` and its state, by dotted path; empty if no
            client delivered: the mean of everything else that clients sent ("work", FedNova's τ;
            "c", Mime's and MimeLite's; "dc", SCAFFOLD's), "gradient", which FedGBO recovered, and
            "fedglad.B", the running mean that the similarity was compared with
    clients the memory of every client, as `init_client` until it delivers: "h", "t", "a", "c", ...
    models  the last model that every client delivered, the start until it does
    everyone  the mean of `models`, by samples if the algorithm weights by samples
    weights each delivering client's weight in the mean; they sum to 1. Krum keeps those above 0;
            Median and TrimmedMean ignore them
    delivered  the clients whose updates arrived
    dropped clients whose update was not finite → the reason
    """

    t: int
    x: np.ndarray
    xbar: np.ndarray
    mean: np.ndarray | None
    buffers: np.ndarray
    server: Mapping[str, Any]
    used: Mapping[str, Any]
    clients: Mapping[int, Mapping[str, Any]]
    models: Mapping[int, np.ndarray]
    everyone: np.ndarray
    weights: Mapping[int, float]
    delivered: tuple[int, ...]
    dropped: Mapping[int, str]


def replay(
    algorithm: Algorithm,
    clients: Sequence[tuple[Any, Any]],
    plans: Sequence[Plan],
    *,
    model: str | nn.Module = "softmax",
    classes: int | None = None,
    loss: str | Loss | None = None,
    start: Any = None,
    groups: Sequence[int] | None = None,
    lr: float = 0.1,
    lr_decay: float = 1.0,
    weight_decay: float = 0.0,
    steps: int | Sequence[int] | Mapping[int, int] = 1,
    dtype: torch.dtype = torch.float64,
    engine: Engine | None = None,
) -> list[Snapshot]:
    """Run an algorithm without any randomness, with the code that experiments use.

    algorithm   an `Algorithm`
    clients     (inputs, targets) of each client; its index is its id
    plans       one `Plan` per round
    model       "softmax" (linear, cross-entropy, labels 0..C-1), "least_squares" (linear, half the
                mean squared error) or any module; parameters are ordered as in the module, weights
                before bias, row by row
    classes     number of classes of "softmax"; one more than the largest label if not given
    loss        a name or a function of (outputs, targets); if not given, cross-entropy for integer
                targets, else half the mean squared error
    start       initial parameters; zeros for the models by name, else those of the module
    groups      sizes of the parameter groups; one per parameter tensor if not given
    lr          local step size in round t: lr * lr_decay^(t-1)
    weight_decay  coupled L2, added to every gradient
    steps       local steps of clients without batches: a number, one for each client, or client →
                number (else 1)
    dtype       of all computations
    engine      where clients run, such as `undrift.engines.Compiled()`; one by one in Python if not
                given
    """
    if not isinstance(algorithm, Algorithm):
        raise UndriftError(f"{algorithm!r} is not an algorithm; undrift.algorithm(...) makes one")
    if not plans:
        raise UndriftError("plans=[]: give a Plan for each round")
    for i, pair in enumerate(clients):
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise UndriftError(f"client {i}: give a pair (inputs, targets), not {shortened(pair)}")
    Local(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay)  # refuses bad values by public names
    ready_made = isinstance(model, str)
    data = FederatedData.of_clients(
        [
            (
                _tensor(x, dtype, f"inputs of client {i}", cast=ready_made),
                _tensor(y, dtype, f"targets of client {i}", cast=model == "least_squares"),
            )
            for i, (x, y) in enumerate(clients)
        ]
    )
    task = Task(
        _model(model, data, classes),
        loss or suitable_loss(data.targets),
        groups=groups,
        dtype=dtype,
    )
    if start is not None or ready_made:
        task.x0 = _start(start, task.x0)
    work = local_steps(steps, len(clients))
    for t, plan in enumerate(plans, 1):
        check_plan(t, plan, data.sizes)
    script = _Script(lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, plans=plans, work=work)
    snapshots = []
    everyone, fresh = range(len(clients)), algorithm.init_client(task.x0)
    before = algorithm.init_server(task.x0, task.groups)
    for round in rounds(
        algorithm,
        task,
        data,
        total=len(plans),
        sampler=_Planned(plans),
        local=script,
        population=lambda t: plans[t - 1].population(len(clients)),
        engine=engine or Sequential(),
        keep_models=True,
    ):
        state = dict(_arrays(round.server))
        if round.mean is None and "fedglad.gsi" in state:
            nothing = np.full_like(state["fedglad.B"], math.nan)
            state |= {"fedglad.gsi": nothing, "fedglad.factor": nothing}
        models, mean = round.state.models, round.state.everyone
        assert models is not None
        assert mean is not None
        snapshots.append(
            Snapshot(
                t=round.t,
                x=state.pop("x"),
                xbar=state.pop("xbar"),
                mean=None if round.mean is None else round.mean.raw.numpy().copy(),
                buffers=round.buffers.numpy().copy(),
                server=state,
                used=_used(algorithm, before, round, script, data.sizes),
                clients={i: dict(_arrays(round.clients.get(i, fresh))) for i in everyone},
                models={i: models.get(i, Struct(y=task.x0)).y.numpy().copy() for i in everyone},
                everyone=mean.numpy().copy(),
                weights=dict(round.weights),
                delivered=round.delivered,
                dropped=dict(round.dropped),
            )
        )
        before = round.server
    return snapshots


def _used(
    algorithm: Algorithm, before: Struct, round: Round, script: _Script, sizes: np.ndarray
) -> dict[str, Any]:
    """`Snapshot.used`, given the server's state before the round."""
    if round.mean is None:
        return {}
    used = {k: v for k, v in _arrays(round.mean) if k not in ("raw", "delta", "fedglad.square")}
    core = algorithm.core if isinstance(algorithm, Part) else algorithm
    if isinstance(core, FedGBO):
        K = sum(w * len(script.plan(0, round.t, i, sizes[i])) for i, w in round.weights.items())
        path = round.mean.raw / (script.lr_at(round.t) * core.optimiser.lr * K)
        used["gradient"] = core.optimiser.invert(before.stats, path).numpy()
    if "fedglad" in before:
        B = before.fedglad.B
        used["fedglad.B"] = B.where(B > 0, round.server.fedglad.gsi).numpy()
    return used


@dataclass(frozen=True)
class _Planned(Sampler):
    """Draws the cohorts of the plans."""

    plans: Sequence[Plan] = ()

    def draw(self, urn: Urn) -> Cohort:
        plan = self.plans[urn.t - 1]
        return Cohort(tuple(sorted(plan.delivers)), plan.weights)


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


def _tensor(values: Any, dtype: torch.dtype, name: str, cast: bool = False) -> Tensor:
    """Values as a tensor: floats as `dtype`, integers as int64 unless `cast`."""
    try:
        # by way of NumPy, whose floats have 64 bits: torch would round Python's to 32
        tensor = torch.as_tensor(values if isinstance(values, Tensor) else np.asarray(values))
    except (TypeError, ValueError) as error:
        raise UndriftError(f"{name}: not an array of numbers: {error}") from None
    return tensor.to(dtype) if cast or tensor.is_floating_point() else tensor.long()


def _model(model: str | nn.Module, data: FederatedData, classes: int | None) -> nn.Module:
    if classes is not None and model != "softmax":
        raise UndriftError(f"classes={classes}: only model='softmax' takes it")
    if isinstance(model, nn.Module):
        return model
    features = data.inputs[0].numel()
    if model == "softmax":
        least = int(data.targets.max()) + 1
        if classes is not None and (not isinstance(classes, int) or classes < least):
            reason = f"must be a whole number >= {least}: the largest label is {least - 1}"
            raise UndriftError(f"classes={classes!r}: {reason}")
        return nn.Linear(features, classes or least)
    if model == "least_squares":
        return nn.Linear(features, 1)
    raise UndriftError(f"model={model!r}: give 'softmax', 'least_squares' or a module")


def _start(start: Any, x0: Tensor) -> Tensor:
    x = torch.zeros_like(x0) if start is None else _tensor(start, x0.dtype, "start", cast=True)
    if x.shape != x0.shape:
        raise UndriftError(f"start has shape {tuple(x.shape)}; the model needs {tuple(x0.shape)}")
    return x.clone()


def _arrays(record: Struct) -> Any:
    for name, value in record.leaves():
        yield name, value.numpy().copy() if isinstance(value, Tensor) else value
