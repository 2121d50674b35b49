"""The rounds of a federation, as a generator: the body of your `for` is the callback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.batches import Local
from undrift.config import UndriftError
from undrift.core import Algorithm, RoundFacts, Struct, weighted_mean
from undrift.data.federated import FederatedData
from undrift.engines import Engine, Sequential
from undrift.local import Delivery, Work, client_round, client_survey
from undrift.rng import stream
from undrift.sampling import Cohort, Sampler, Uniform, Urn
from undrift.task import Task

Population = Callable[[int], Sequence[int]]
"""Round to the ids of the clients that are registered in it."""


@dataclass
class State:
    """Everything that a run carries from one round to the next."""

    server: Struct
    buffers: Tensor
    t: int = 0
    clients: dict[int, Struct] = field(default_factory=dict)
    """memory of the clients that have delivered"""
    models: dict[int, Tensor] | None = None
    """last delivered model of each client, if asked for"""
    attention: np.ndarray | None = None
    """what the sampler remembers"""


@dataclass(frozen=True)
class Round:
    """What happened in a round, and the state after it."""

    t: int
    server: Struct
    buffers: Tensor
    clients: Mapping[int, Struct]
    cohort: tuple[int, ...]
    delivered: tuple[int, ...]
    dropped: Mapping[int, str]
    """why each of the others delivered nothing"""
    mean: Struct | None
    """mean of the uploads; None in a void round"""
    weights: Mapping[int, float]
    """share of each delivering client in the mean"""
    train_loss: float
    """mean loss on the clients' local paths"""
    drift: float
    """root mean square distance of the clients' models from their mean"""
    gsi: float
    """similarity indicator over all parameters: 1 if all updates agree"""
    bytes_down: int
    bytes_up: int
    steps: int
    """local steps of all clients together"""
    samples: int
    """samples in their mini-batches"""
    seconds: float
    state: State = field(repr=False)


def start(
    algorithm: Algorithm,
    task: Task,
    data: FederatedData,
    sampler: Sampler,
    *,
    keep_models: bool = False,
) -> State:
    """The state before round 1."""
    return State(
        server=algorithm.init_server(task.x0, task.groups),
        buffers=task.buffers0,
        models={} if keep_models else None,
        attention=sampler.start(len(data)),
    )


def rounds(
    algorithm: Algorithm,
    task: Task,
    data: FederatedData,
    *,
    total: int,
    sampler: Sampler | None = None,
    local: Local | None = None,
    seed: int = 0,
    engine: Engine | None = None,
    population: Population | None = None,
    dropout: float = 0.0,
    state: State | None = None,
    keep_models: bool = False,
) -> Iterator[Round]:
    """Run rounds up to number `total`, yielding each.

    population   which clients are registered in a round; all of them if not given
    dropout      chance that a client fails to deliver
    state        where to go on from; it is changed in place
    keep_models  keep every client's last model, for the mean over all clients
    """
    sampler = sampler or Uniform(min(10, len(data)))
    local = local or Local()
    engine = engine or Sequential()
    if not 0 <= dropout <= 1:
        raise UndriftError(f"dropout={dropout}: must be between 0 and 1")
    state = state or start(algorithm, task, data, sampler, keep_models=keep_models)
    while state.t < total:
        began = time.perf_counter()
        t = state.t + 1
        registered = np.arange(len(data)) if population is None else np.array(sorted(population(t)))
        sizes = data.sizes[registered]
        urn = Urn(t, registered, sizes, stream(seed, "cohort", t), state.attention)
        cohort = sampler.draw(urn)
        lost = stream(seed, "dropout", t).random(len(data))
        dropped = {i: "dropped out" for i in cohort.ids if lost[i] < dropout}
        dropped |= {i: "no samples" for i in cohort.ids if data.sizes[i] == 0}
        works = [
            _work(data, local, seed, t, i, float(sizes.mean()))
            for i in cohort.ids
            if i not in dropped
        ]
        yield _play(
            algorithm, task, state, engine, sampler, cohort, works, dropped, len(registered), began
        )


def _work(data: FederatedData, local: Local, seed: int, t: int, client: int, n_mean: float) -> Work:
    inputs, targets = data.client(client)
    return Work(
        t=t,
        client=client,
        seed=seed,
        inputs=inputs,
        targets=targets,
        batches=local.plan(seed, t, client, len(targets)),
        lr=local.lr_at(t),
        lr0=local.lr,
        weight_decay=local.weight_decay,
        n_mean=n_mean,
        transform=data.transform,
    )


def _play(
    algorithm: Algorithm,
    task: Task,
    state: State,
    engine: Engine,
    sampler: Sampler,
    cohort: Cohort,
    works: list[Work],
    dropped: dict[int, str],
    population: int,
    began: float,
) -> Round:
    """One round: send, train, receive, average, update."""
    t, server = state.t + 1, state.server
    fresh = algorithm.init_client(server.x)
    down = algorithm.download(server)
    bytes_up = 0

    def weight(work: Work) -> float:
        if cohort.weights is not None:
            return cohort.weights[work.client]
        return float(len(work.targets)) if algorithm.weights == "samples" else 1.0

    def run(function: Any, work: Work) -> Any:
        me = state.clients.get(work.client, fresh)
        return function(algorithm, task, work, down, me, state.buffers)

    survey = Struct()
    if algorithm.surveys:
        answers = Mean()
        for work, answer in zip(works, engine.map(partial(run, client_survey), works), strict=True):
            bytes_up += nbytes(answer)
            if (bad := first_bad(answer)) is not None:
                dropped[work.client] = f"diverged: {bad} is not finite"
            else:
                answers.add(weight(work), answer)
        works = [work for work in works if work.client not in dropped]
        survey = answers.result() if works else survey
        down |= survey

    mean = AllUploads(algorithm, server) if algorithm.holistic else Mean()
    memories: dict[int, Struct] = {}
    deltas: dict[int, Tensor] = {}
    keep_deltas = sampler.learns or state.models is not None
    accepted: list[Work] = []
    for work, delivery in zip(works, engine.map(partial(run, client_round), works), strict=True):
        bytes_up += nbytes(delivery.up) + nbytes(delivery.buffers)
        if (bad := _fault(delivery)) is not None:
            dropped[work.client] = f"diverged: {bad} is not finite"
            continue
        up = algorithm.receive(server, delivery.up, task.groups)
        side = Struct(
            steps=float(len(work.batches)),
            loss=delivery.loss,
            square=float(delivery.up.delta @ delivery.up.delta),
            delta=delivery.up.delta,
            buffers=delivery.buffers,
        )
        mean.add(weight(work), Struct(up=up, side=side))
        memories[work.client] = delivery.me
        accepted.append(work)
        if keep_deltas:
            deltas[work.client] = delivery.up.delta

    state.t = t
    outcome: Struct | None = None
    train_loss = drift = gsi = float("nan")
    shares: dict[int, float] = {}
    if accepted:
        both = mean.result()
        side = both.side
        outcome = both.up | survey
        outcome |= Struct(raw=outcome.delta)
        facts = RoundFacts(
            t=t,
            lr=works[0].lr,
            steps=side.steps,
            cohort=len(accepted),
            population=population,
            n_mean=float(np.mean([len(work.targets) for work in accepted])),
            groups=task.groups,
        )
        d, changes = algorithm.update(server, outcome, facts)
        state.server = server | changes | Struct(x=server.x - d)
        state.buffers = side.buffers
        state.clients |= memories
        shares = {w.client: float(share) for w, share in zip(accepted, mean.shares, strict=True)}
        of_mean = float(side.delta @ side.delta)
        train_loss, drift = float(side.loss), max(side.square - of_mean, 0.0) ** 0.5
        gsi = (side.square / of_mean) ** 0.5 if of_mean > 0 else float("nan")
        if state.models is not None:
            state.models |= {i: server.x - delta for i, delta in deltas.items()}
        if sampler.learns:
            distances = {i: float((delta - side.delta).norm()) for i, delta in deltas.items()}
            state.attention = sampler.learn(state.attention, distances)
    return Round(
        t=t,
        server=state.server,
        buffers=state.buffers,
        clients=state.clients,
        cohort=cohort.ids,
        delivered=tuple(work.client for work in accepted),
        dropped=dropped,
        mean=outcome,
        weights=shares,
        train_loss=train_loss,
        drift=drift,
        gsi=gsi,
        bytes_down=len(cohort.ids) * (nbytes(down) + nbytes(state.buffers)),
        bytes_up=bytes_up,
        steps=sum(len(work.batches) for work in works),
        samples=sum(len(batch) for work in works for batch in work.batches),
        seconds=time.perf_counter() - began,
        state=state,
    )


class Mean:
    """A weighted mean of records, built up one by one."""

    def __init__(self) -> None:
        self.total: Struct | None = None
        self.weights: list[float] = []

    def add(self, weight: float, record: Struct) -> None:
        scaled = record.map(lambda value: weight * value)
        self.total = scaled if self.total is None else self.total.map(lambda a, b: a + b, scaled)
        self.weights.append(weight)

    @property
    def shares(self) -> list[float]:
        total = sum(self.weights)
        return [weight / total for weight in self.weights]

    def result(self) -> Struct:
        assert self.total is not None
        return self.total.map(lambda value: value / sum(self.weights))


class AllUploads(Mean):
    """All records of a round at once, for algorithms that weigh or combine them themselves."""

    def __init__(self, algorithm: Algorithm, server: Struct) -> None:
        super().__init__()
        self.algorithm, self.server = algorithm, server
        self.records: list[Struct] = []

    def add(self, weight: float, record: Struct) -> None:
        self.weights.append(weight)
        self.records.append(record)

    def result(self) -> Struct:
        ups = [record.up for record in self.records]
        self.weights = self.algorithm.reweigh(self.server, ups, self.shares)
        side = weighted_mean([record.side for record in self.records], self.weights)
        return Struct(up=self.algorithm.combine(ups, self.weights), side=side)


def nbytes(message: Struct | Tensor) -> int:
    """The size of a message: its vectors as stored, a plain number as 8 bytes."""
    values = [message] if isinstance(message, Tensor) else [value for _, value in message.leaves()]
    return sum(
        value.numel() * value.element_size() if isinstance(value, Tensor) else 8 for value in values
    )


def first_bad(record: Struct) -> str | None:
    """The first field with a NaN or Inf in it."""
    for name, value in record.leaves():
        if not bool(torch.isfinite(torch.as_tensor(value)).all()):
            return name
    return None


def _fault(delivery: Delivery) -> str | None:
    return (
        first_bad(delivery.up)
        or first_bad(delivery.me)
        or first_bad(Struct(buffers=delivery.buffers, loss=delivery.loss))
    )
