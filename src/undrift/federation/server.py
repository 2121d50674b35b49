"""The server: its state from round to round, and how it runs one round."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from undrift.core import Algorithm, RoundFacts, Struct
from undrift.engines import Engine
from undrift.federation.aggregate import AllUploads, SurveyMean, Uploads, nbytes
from undrift.federation.jobs import ClientQueue, SurveyJob, TrainJob
from undrift.federation.sampling import Cohort, Sampler
from undrift.system.signals import uninterrupted
from undrift.training.memory import Store
from undrift.training.task import Task
from undrift.training.trainer import ClientResult, Work
from undrift.vectors import cosine


@dataclass
class State:
    """Everything that is kept from one round to the next; Ctrl-C never leaves it half updated."""

    server: Struct
    buffers: Tensor
    t: int = 0
    clients: Store = field(default_factory=Store)
    """records of the clients that have delivered"""
    models: Store | None = None
    """last delivered model y of each client, with `keep_models`"""
    everyone: Tensor | None = None
    """mean over all clients of their last models (x0 for those that never delivered), in float64"""
    attention: np.ndarray | None = None
    """the sampler's state"""
    notes: dict[str, Any] = field(default_factory=dict)
    """other JSON values for a checkpoint"""

    def close(self) -> None:
        """Close the files of the stores, if there are any."""
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
    """records of the clients that have delivered in any round so far; later rounds change it"""
    cohort: tuple[int, ...]
    delivered: tuple[int, ...]
    dropped: Mapping[int, str]
    """client → why it delivered nothing"""
    weights: Mapping[int, float]
    """normalised weight of each delivering client in the mean"""
    mean: Struct | None
    """mean of the uploads; None if no client delivered"""
    correction: Tensor | None
    """the server's estimate of the drift after the round, if the algorithm has one"""
    train_loss: float
    """mean loss of the clients' local steps"""
    drift: float
    """root mean square distance of the clients' models from their mean"""
    gsi: float
    """similarity indicator of the updates, over all parameters: 1 if all are equal"""
    square: float
    """mean squared length of the updates, with the weights of the mean"""
    square_spread: float
    """standard deviation of the squared lengths over their mean, with the same weights"""
    all_square: float
    """mean squared length of all clients' updates, from the same state; NaN if not asked for"""
    all_gsi: float
    """similarity indicator of all clients' updates; NaN if not asked for"""
    cohort_cosine: float
    """cosine of the mean updates of cohort and all clients; NaN if not asked for"""
    bytes_down: int
    bytes_up: int
    steps: int
    """local steps of all clients together"""
    samples: int
    """samples in the mini-batches of these steps"""
    seconds: float


@dataclass(frozen=True)
class Server:
    """Runs rounds: send, train, receive, average, update."""

    algorithm: Algorithm
    task: Task
    sampler: Sampler
    engine: Engine
    sizes: np.ndarray
    """number of samples of every client; of the pool, if there are no clients"""

    def play(
        self,
        state: State,
        cohort: Cohort,
        works: Sequence[Work],
        dropped: dict[int, str],
        population: int,
        began: float,
        everyone: Sequence[Work] = (),
    ) -> Round:
        """Run one round with the clients in `works`; `dropped` says why others have no work.

        The cohort's updates are compared with those of `everyone`, if given.
        """
        algorithm, server = self.algorithm, state.server
        down, survey, bytes_up, steps, samples = algorithm.download(server), Struct(), 0, 0, 0
        if algorithm.surveys:
            answers = SurveyMean()
            asked = SurveyJob(algorithm, down, state.buffers)
            for work, result in self._ask(asked, works, state, cohort, answers):
                bytes_up += result.bytes_up
                self._accept(work, result, dropped)
            works = [work for work in works if work.client not in dropped]
            survey = answers.result()
            down |= survey

        uploads = (AllUploads if algorithm.holistic else Uploads)(algorithm, server)
        accepted: list[Work] = []
        numbers: list[tuple[float, float, float]] = []
        # A draft: records change only with the server, below. An interrupt or error in the middle
        # of a round leaves the state of the round before.
        memories = state.clients.draft()
        deltas: dict[int, Tensor] = {}
        job = TrainJob(algorithm, server, down, state.buffers)
        single = self.sampler.learns or state.models is not None
        for work, result in self._ask(job, works, state, cohort, uploads, single):
            bytes_up += result.bytes_up
            steps += result.steps
            samples += result.samples
            if not self._accept(work, result, dropped):
                continue
            accepted.append(work)
            numbers.append((result.square, result.loss, result.steps))
            memories.put(work.client, result.me)
            if single:
                deltas[work.client] = result.up.delta

        compared = None
        if everyone and accepted:
            paused = time.perf_counter()
            compared = self._updates_of(everyone, job, state)
            began += time.perf_counter() - paused

        shares: list[float] = []
        mean, train_loss, drift, gsi = None, math.nan, math.nan, math.nan
        square, square_spread = math.nan, math.nan
        all_square, all_gsi, cohort_cosine = math.nan, math.nan, math.nan
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
                drift = max(square - of_mean, 0.0) ** 0.5  # variance: E||d||² − ||E d||²
                gsi = _gsi(square, of_mean)
                square_spread = _spread([one for one, _, _ in numbers], square, shares)
                if compared:
                    all_square, of_all = compared
                    all_gsi = _gsi(all_square, float(of_all @ of_all))
                    cohort_cosine = cosine(side.delta, of_all)
        ids = tuple(work.client for work in accepted)
        sent = algorithm.regime == "federated"
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
            correction=algorithm.correction(state.server),
            train_loss=train_loss,
            drift=drift,
            gsi=gsi,
            square=square,
            square_spread=square_spread,
            all_square=all_square,
            all_gsi=all_gsi,
            cohort_cosine=cohort_cosine,
            bytes_down=sent * len(cohort.ids) * nbytes(down | Struct(buffers=state.buffers)),
            bytes_up=sent * bytes_up,
            steps=steps,
            samples=samples,
            seconds=time.perf_counter() - began,
        )

    def _ask(
        self,
        job: SurveyJob | TrainJob,
        works: Sequence[Work],
        state: State,
        cohort: Cohort,
        into: SurveyMean | Uploads,
        deltas: bool = False,
    ) -> Iterator[tuple[Work, ClientResult]]:
        """Run a job for every client on the engine, which adds up what they deliver.

        Results come in the order of `works`; `deltas` says whether they include single updates.
        """
        fresh = fresh_memory(self.algorithm, state)
        weights = [self._weight(work.client, cohort) for work in works]
        clients = ClientQueue(works, state.clients, fresh, weights, deltas)
        return zip(works, self.engine.gather(job, self.task, clients, into), strict=True)

    def _updates_of(
        self, works: Sequence[Work], job: TrainJob, state: State
    ) -> tuple[float, Tensor]:
        """Mean squared length and mean of the updates in these works; nothing else is kept."""
        uploads = Uploads(self.algorithm, job.server)
        results = self._ask(job, works, state, Cohort(()), uploads)
        squares = [[result.square] for _, result in results if result.delivered]
        mean, side, shares = uploads.result()
        delta: Tensor = (mean | side).delta
        return _means(squares, shares)[0], delta

    def _accept(self, work: Work, result: ClientResult, dropped: dict[int, str]) -> bool:
        """Whether a client delivered; otherwise note why not."""
        if not result.delivered:
            dropped[work.client] = result.absent or f"diverged: {result.bad} is not finite"
        return result.delivered

    def _weight(self, client: int, cohort: Cohort) -> float:
        """A client's weight, before normalisation."""
        if cohort.weights is not None:
            return cohort.weights[client]
        return float(self.sizes[client]) if self.algorithm.weights == "samples" else 1.0

    def _update(
        self,
        state: State,
        mean: Struct,
        side: Struct,
        steps: float,
        accepted: Sequence[Work],
        population: int,
    ) -> None:
        """Apply the algorithm's server step to the state."""
        facts = RoundFacts(
            t=state.t,
            lr=accepted[0].local.lr_at(state.t),
            lr0=accepted[0].local.lr,
            steps=steps,
            cohort=len(accepted),
            population=population,
            n_mean=float(np.mean([self.sizes[work.client] for work in accepted])),
            groups=self.task.groups,
        )
        d, changes = self.algorithm.update(state.server, mean, facts)
        x = state.server.x
        if "xbar" not in changes:
            changes |= Struct(xbar=x - mean.delta)
        state.server = state.server | changes | Struct(x=x - d)
        if "buffers" in side and self.algorithm.regime != "local":
            state.buffers = side.buffers

    def _remember(
        self, state: State, x: Tensor, mean: Tensor, deltas: Mapping[int, Tensor]
    ) -> None:
        """Update the mean of all clients' last models and the sampler's state, if they are used."""
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


def fresh_memory(algorithm: Algorithm, state: State) -> Struct:
    """What a client remembers before its first round; if it trains alone, its buffers too."""
    me = algorithm.init_client(state.server.x)
    alone = algorithm.regime == "local" and state.buffers.numel() > 0
    return me | Struct(buffers=state.buffers) if alone else me


def _gsi(square: float, of_mean: float) -> float:
    """The similarity indicator, of the mean squared length and that of the mean."""
    return (square / of_mean) ** 0.5 if of_mean > 0 else math.nan


def _spread(values: Sequence[float], mean: float, shares: Sequence[float]) -> float:
    """The weighted standard deviation, over the mean."""
    if not mean > 0:
        return math.nan
    pairs = [(value / mean - 1, w) for value, w in zip(values, shares, strict=True) if w > 0]
    return math.sqrt(sum(w * off * off for off, w in pairs))  # off**2 may raise


def _means(rows: Sequence[Sequence[float]], shares: Sequence[float]) -> list[float]:
    """The weighted mean of each column."""
    return [
        sum(share * value for share, value in zip(shares, column, strict=True))
        for column in zip(*rows, strict=True)
    ]
