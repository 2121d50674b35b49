"""The rounds of a federation, as a generator: the body of your `for` is the callback."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.arithmetic import in_one_thread
from undrift.config import UndriftError
from undrift.core import Algorithm, RoundFacts, Struct
from undrift.data.federated import FederatedData
from undrift.engines import Engine, Prepared, usual_engine
from undrift.federation.aggregate import AllUploads, Mean, Uploads, nbytes
from undrift.federation.jobs import Answer, Exchange, Items, Survey
from undrift.federation.sampling import Cohort, Sampler, Uniform, Urn
from undrift.keyed import Keyed
from undrift.rng import stream
from undrift.system.signals import uninterrupted
from undrift.training.memory import Store
from undrift.training.task import Task
from undrift.training.trainer import Work
from undrift.training.work import Local

Population = Callable[[int], Sequence[int]]
"""Round to the ids of the clients that are registered in it."""


@dataclass
class State:
    """Everything that a run carries from one round to the next; Ctrl-C never tears it."""

    server: Struct
    buffers: Tensor
    t: int = 0
    clients: Store = field(default_factory=Store)
    """memory of the clients that have delivered"""
    models: Store | None = None
    """last delivered model y of each client, if asked for"""
    everyone: Tensor | None = None
    """mean over all clients of their last models, the first one where there is none, in float64"""
    attention: np.ndarray | None = None
    """what the sampler remembers"""
    notes: dict[str, Any] = field(default_factory=dict)
    """whatever else, in terms of JSON, should be in a checkpoint"""

    def close(self) -> None:
        """Let go of files, if there are any."""
        for store in (self.clients, self.models):
            if store is not None:
                store.close()


@dataclass(frozen=True)
class Round:
    """What happened in a round, and the state after it."""

    t: int
    state: State = field(repr=False)
    server: Struct
    buffers: Tensor = field(repr=False)
    clients: Mapping[int, Struct] = field(repr=False)
    """memory of the clients that have delivered in any round so far; later rounds change it"""
    cohort: tuple[int, ...]
    delivered: tuple[int, ...]
    dropped: Mapping[int, str]
    """why each of the others delivered nothing"""
    weights: Mapping[int, float]
    """share of each delivering client in the mean"""
    mean: Struct | None
    """mean of the uploads; None in a void round"""
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


def start(
    algorithm: Algorithm,
    task: Task,
    data: FederatedData,
    sampler: Sampler,
    *,
    keep_models: bool = False,
    folder: Path | None = None,
) -> State:
    """The state before round 1; what clients remember is in memory if there is no folder for it."""
    return State(
        server=algorithm.init_server(task.x0, task.groups),
        buffers=task.buffers0,
        clients=Store(folder and folder / "clients"),
        models=Store(folder and folder / "models") if keep_models else None,
        everyone=task.x0.to(torch.float64, copy=True) if keep_models else None,
        attention=sampler.start(len(data)),
    )


@in_one_thread
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
) -> Generator[Round, None, None]:
    """Run rounds up to number `total`, yielding each.

    sampler      which clients take part; 10 at random if not given
    local        what they do: step size, batches, amount of work
    seed         of cohorts, batches and everything else that is random
    engine       where clients run; the fastest that there is for the task if not given. All but
                 `Sequential` take model and loss as they are now: what Python changes in them
                 between rounds is not seen
    population   which clients are registered in a round; all of them if not given
    dropout      chance that a client fails to deliver
    state        where to go on from; it is changed in place
    keep_models  keep every client's last model, for the mean over all clients
    """
    if not isinstance(algorithm, Algorithm):
        raise UndriftError(
            f"{algorithm!r} is not an algorithm; give AdaBest() or undrift.algorithm('adabest')"
        )
    if not isinstance(task, Task):
        raise UndriftError(f"a {type(task).__name__} is not a task; give undrift.Task(model)")
    if type(total) is not int or total < 1:
        raise UndriftError(f"total={total!r}: must be a whole number >= 1")
    if not 0 <= dropout < 1:
        raise UndriftError(f"dropout={dropout}: must be at least 0 and less than 1")
    sampler = sampler or Uniform(min(10, len(data)))
    local = local or Local()
    engine = engine or usual_engine()
    require_quorum(algorithm, sampler)
    prepare(engine, task, data, local)
    server = Server(algorithm, task, sampler, engine, data.sizes)
    state = state or start(algorithm, task, data, sampler, keep_models=keep_models)
    while state.t < total:
        began = time.perf_counter()
        t = state.t + 1
        registered = _registered(population, t, len(data))
        sizes = data.sizes if population is None else data.sizes[registered]
        cohort = sampler.draw(Urn(t, registered, sizes, stream(seed, "cohort", t), state.attention))
        dropped = {i: "no samples" for i in cohort.ids if data.sizes[i] == 0}
        if dropout:
            luck = stream(seed, "dropout", t).random(len(data))
            dropped |= {i: "dropped out" for i in cohort.ids if luck[i] < dropout}
        n_mean = float(sizes.mean()) if len(sizes) else 0.0
        works = [Work(t, i, seed, data, local, n_mean) for i in cohort.ids if i not in dropped]
        yield server.play(state, cohort, works, dropped, len(registered), began)


def require_quorum(algorithm: Algorithm, sampler: Sampler) -> None:
    """Refuse an algorithm for which the sampler never draws enough clients."""
    if sampler.largest is not None and sampler.largest < algorithm.quorum:
        raise UndriftError(
            f"{algorithm!r} needs {algorithm.quorum} clients in a round, and {sampler!r} draws "
            f"{sampler.largest}; draw more, or withstand fewer bad ones"
        )


def prepare(engine: Engine, task: Task, data: FederatedData, local: Local) -> Prepared:
    """Let an engine get ready for batches of this data."""
    client = int(np.argmax(data.sizes))
    count = int(data.sizes[client])
    if count == 0:
        return Prepared("python", "nobody has samples")
    rows = data.rows(client)[: count if local.batching == "full" else min(local.batch_size, count)]
    inputs, targets = data.batch(rows)
    _refuse_misfit(task, data, inputs[:2], targets[:2])
    return engine.prepare(task, inputs, targets)


@torch.no_grad()
def _refuse_misfit(task: Task, data: FederatedData, inputs: Tensor, targets: Tensor) -> None:
    """Refuse a model that cannot read the inputs, and a loss that compares each with all."""
    twin = task.replica()  # a model in Python may count its calls
    twin.model.eval()
    with Keyed(torch.Generator(task.x0.device)), warnings.catch_warnings():
        warnings.filterwarnings("error", "Using a target size")
        try:
            outputs = twin.model(inputs)
        except Exception as error:  # whatever a model may raise
            raise UndriftError(f"{task!r} cannot train on {data!r}: {error}") from error
        try:
            twin.loss(outputs, targets)
        except UserWarning:
            raise UndriftError(
                f"{task!r} on {data!r}: the loss would compare each output with all targets, since "
                f"two of them have the shapes {tuple(outputs.shape)} and {tuple(targets.shape)}; "
                "make these agree, such as with outputs.squeeze(1) in the loss"
            ) from None
        except Exception:
            return  # clients will meet it again, and say where


def _registered(population: Population | None, t: int, clients: int) -> np.ndarray:
    if population is None:
        return np.arange(clients)
    ids = np.unique(np.asarray(population(t), dtype=np.int64))
    wrong = ids[(ids < 0) | (ids >= clients)].tolist()
    if wrong:
        raise UndriftError(f"round {t}: there are no clients {wrong}; ids are 0..{clients - 1}")
    return ids


@dataclass(frozen=True)
class Server:
    """Plays rounds: send, train, receive, average, update."""

    algorithm: Algorithm
    task: Task
    sampler: Sampler
    engine: Engine
    sizes: np.ndarray
    """samples of every client"""

    def play(
        self,
        state: State,
        cohort: Cohort,
        works: Sequence[Work],
        dropped: dict[int, str],
        population: int,
        began: float,
    ) -> Round:
        """One round with the clients that have work; `dropped` says why others have none."""
        algorithm, server = self.algorithm, state.server
        down, survey, bytes_up, steps, samples = algorithm.download(server), Struct(), 0, 0, 0
        if algorithm.surveys:
            answers = Mean()
            for work, answer in self._ask(Survey(algorithm, down, state.buffers), works, state):
                bytes_up += answer.bytes_up
                if self._accept(work, answer, dropped):
                    answers.add(self._weight(work, cohort), answer.record)
                else:
                    answers.skip()
            works = [work for work in works if work.client not in dropped]
            survey = answers.result()
            down |= survey

        uploads = (AllUploads if algorithm.holistic else Uploads)(algorithm, server)
        accepted: list[Work] = []
        numbers: list[tuple[float, float, float]] = []
        memories = state.clients.draft()
        deltas: dict[int, Tensor] = {}
        exchange = Exchange(algorithm, server, down, state.buffers)
        for work, answer in self._ask(exchange, works, state):
            bytes_up += answer.bytes_up
            steps += answer.steps
            samples += answer.samples
            if not self._accept(work, answer, dropped):
                uploads.skip()
                continue
            uploads.add(self._weight(work, cohort), answer.record, answer.side)
            accepted.append(work)
            numbers.append((answer.square, answer.loss, answer.steps))
            memories.put(work.client, answer.memory)
            if answer.delta is not None and (self.sampler.learns or state.models is not None):
                deltas[work.client] = answer.delta

        shares: list[float] = []
        mean, train_loss, drift, gsi = None, math.nan, math.nan, math.nan
        with uninterrupted():
            state.t += 1
            if accepted:
                mean, side, shares = uploads.result()
                side = Struct(delta=mean.delta) | side
                mean |= survey | Struct(raw=mean.delta)
                square, train_loss, local_steps = _means(numbers, shares)
                self._update(state, mean, side, local_steps, accepted, population)
                memories.commit()
                self._remember(state, server.x, side.delta, deltas)
                of_mean = float(side.delta @ side.delta)
                drift = max(square - of_mean, 0.0) ** 0.5
                gsi = (square / of_mean) ** 0.5 if of_mean > 0 else math.nan
        ids = tuple(work.client for work in accepted)
        return Round(
            t=state.t,
            state=state,
            server=state.server,
            buffers=state.buffers,
            clients=state.clients,
            cohort=cohort.ids,
            delivered=ids,
            dropped=dropped,
            weights=dict(zip(ids, shares, strict=True)),
            mean=mean,
            train_loss=train_loss,
            drift=drift,
            gsi=gsi,
            bytes_down=len(cohort.ids) * nbytes(down | Struct(buffers=state.buffers)),
            bytes_up=bytes_up,
            steps=steps,
            samples=samples,
            seconds=time.perf_counter() - began,
        )

    def _ask(
        self, exchange: Survey | Exchange, works: Sequence[Work], state: State
    ) -> Iterator[tuple[Work, Answer]]:
        """Run an exchange with every client, wherever the engine does; answers come in order."""
        items = Items(works, state.clients, self.algorithm.init_client(state.server.x))
        return zip(works, self.engine.map(exchange, self.task, items), strict=True)

    def _accept(self, work: Work, answer: Answer, dropped: dict[int, str]) -> bool:
        """Whether all that a client sent is finite; otherwise it is dropped."""
        if answer.bad is not None:
            dropped[work.client] = f"diverged: {answer.bad} is not finite"
        return answer.bad is None

    def _weight(self, work: Work, cohort: Cohort) -> float:
        """A client's weight, before all are made to add up to 1."""
        if cohort.weights is not None:
            return cohort.weights[work.client]
        return float(len(work.rows)) if self.algorithm.weights == "samples" else 1.0

    def _update(
        self,
        state: State,
        mean: Struct,
        side: Struct,
        steps: float,
        accepted: Sequence[Work],
        population: int,
    ) -> None:
        """The server's step."""
        facts = RoundFacts(
            t=state.t,
            lr=accepted[0].local.lr_at(state.t),
            steps=steps,
            cohort=len(accepted),
            population=population,
            n_mean=float(np.mean([len(work.rows) for work in accepted])),
            groups=self.task.groups,
        )
        d, changes = self.algorithm.update(state.server, mean, facts)
        x = state.server.x
        if "xbar" not in changes:
            changes |= Struct(xbar=x - mean.delta)
        state.server = state.server | changes | Struct(x=x - d)
        if "buffers" in side:
            state.buffers = side.buffers

    def _remember(
        self, state: State, x: Tensor, mean: Tensor, deltas: Mapping[int, Tensor]
    ) -> None:
        """What is kept of single updates, where somebody asked for it."""
        if state.models is not None and state.everyone is not None:
            weights = (
                self.sizes if self.algorithm.weights == "samples" else np.ones(len(self.sizes))
            )
            for i, delta in deltas.items():
                y = x - delta
                old = state.models[i].y if i in state.models else self.task.x0
                state.everyone.add_(y.double() - old, alpha=float(weights[i] / weights.sum()))
                state.models.put(i, Struct(y=y))
        if self.sampler.learns:
            distances = {i: float((delta - mean).norm()) for i, delta in deltas.items()}
            state.attention = self.sampler.learn(state.attention, distances)


def _means(rows: Sequence[Sequence[float]], shares: Sequence[float]) -> list[float]:
    """The weighted mean of each column."""
    return [
        sum(share * value for share, value in zip(shares, column, strict=True))
        for column in zip(*rows, strict=True)
    ]
