"""The only local training there is: every engine runs `client_rounds`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core import Algorithm, Client, Grad, Struct
from undrift.data.federated import FederatedData
from undrift.keyed import Keyed
from undrift.rng import number, stream
from undrift.training.task import CHUNK, Task
from undrift.training.work import Batch, Local

LEAST = 16
"""Fewest samples of a part of a client's, if it has as many: layers that normalise batches need
more than one."""


class ClientError(RuntimeError):
    """A client's code failed; the message names the round, the client and the stage."""


@dataclass(frozen=True)
class Work:
    """A client's part in a round. It is small: what it takes is made where the client runs."""

    t: int
    client: int
    seed: int
    data: FederatedData
    local: Local
    n_mean: float

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what was computed from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def rows(self) -> np.ndarray:
        """The client's samples, as places in the data."""
        return self.data.rows(self.client)

    @cached_property
    def batches(self) -> Sequence[Batch] | np.ndarray:
        """One row for each local step: positions among the client's samples."""
        return self.local.plan(self.seed, self.t, self.client, len(self.rows))

    @property
    def samples(self) -> int:
        """How many samples its mini-batches have, all together."""
        if isinstance(self.batches, np.ndarray):
            return self.batches.size
        return sum(map(len, self.batches))


@dataclass(slots=True)
class ClientStart:
    """A client before its local steps."""

    work: Work
    facts: Client
    local: Struct
    me: Struct
    buffers: dict[str, Tensor]
    """its own, which the steps change"""


@dataclass(frozen=True)
class ClientResult:
    """Result of one client's job: what it hands over, and what the server's job made of that."""

    up: Struct
    me: Struct
    """its next memory"""
    buffers: Tensor
    loss: float = 0.0
    """mean over its local steps"""
    steps: int = 0
    samples: int = 0
    """in its mini-batches"""

    record: Struct = Struct()
    """what joins the mean"""
    side: Struct = Struct()
    """what is averaged beside it: buffers if there are any, the update if `record` has another"""
    square: float = 0.0
    """squared length of the update"""
    bytes_up: int = 0
    bad: str | None = None
    """the first quantity that is not finite"""
    absent: str | None = None
    """why there is no answer, where clients can fail to answer"""

    @classmethod
    def missing(cls, reason: str) -> ClientResult:
        """The result of a client that did not answer."""
        return cls(Struct(), Struct(), torch.empty(0), absent=reason)

    @property
    def delivered(self) -> bool:
        """Whether there is an answer, and all its values are finite."""
        return self.bad is None and self.absent is None

    def told(self, delta: bool) -> ClientResult:
        """What the server still needs once `record` and `side` are in the sums of a round.

        delta  whether that includes the update itself
        """
        up = Struct(delta=self.up.delta) if delta else Struct()
        empty = Struct()
        return replace(self, up=up, buffers=self.buffers[:0], record=empty, side=empty)


class Trainer:
    """Trains clients, one at a time: every worker has its own, with a task of its own."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.generator = torch.Generator(task.x0.device)
        self.draws = False
        """whether the model is known to draw random numbers"""
        self.stop = torch.zeros(1, dtype=torch.uint8)
        """1 once nobody waits for the results any more"""
        self._still: set[Algorithm] = set()

    def gradient(
        self, x: Tensor, buffers: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mean loss and its gradient; `buffers` change as they do in training."""
        return self.task.gradient(x, buffers, inputs, targets)

    def walks(
        self,
        algorithm: Algorithm,
        starts: Sequence[ClientStart],
        down: Struct,
        keyed: AbstractContextManager[object],
    ) -> list[tuple[Struct, list[float]]]:
        """All local steps of some clients: their variables after them, and the loss of each."""
        return [self.walk(algorithm, start, down, keyed) for start in starts]

    def walk(
        self,
        algorithm: Algorithm,
        start: ClientStart,
        down: Struct,
        keyed: AbstractContextManager[object],
    ) -> tuple[Struct, list[float]]:
        """The same for one client, in Python."""
        work, local = start.work, start.local
        losses: list[Tensor] = []
        rng = stream(work.seed, "augmentation", work.t, work.client)
        for k, batch in enumerate(work.batches):
            if self.stop:
                raise ClientError("stopped")
            with keyed, named(work, f"local step {k + 1}"):
                grad = self._path_gradient(work, batch, start.buffers, losses, rng)
                d = algorithm.direction(grad, local, down, start.me, start.facts)
                local = algorithm.move(local, d, down, start.facts)
        return local, torch.stack(losses).tolist() if losses else []

    def _path_gradient(
        self,
        work: Work,
        batch: Batch,
        buffers: dict[str, Tensor],
        losses: list[Tensor],
        rng: np.random.Generator,
    ) -> Grad:
        """The gradient function of one mini-batch, weight decay included.

        Only the first call belongs to the local path: it notes its loss and moves the buffers.
        """
        inputs, targets = work.data.batch(work.rows[batch], rng)
        decay = work.local.weight_decay
        called = False

        def grad(x: Tensor) -> Tensor:
            nonlocal called
            own = {k: v.clone() for k, v in buffers.items()} if called else buffers
            loss, g = self.gradient(x, own, inputs, targets)
            if not called:
                losses.append(loss)
                called = True
            return g + decay * x if decay else g

        return grad

    def facts(self, work: Work, buffers: Tensor) -> Client:
        """What an algorithm may ask for. Gradients asked for here leave buffers alone."""
        decay = work.local.weight_decay

        def mean_grad(x: Tensor, parts: list[np.ndarray]) -> Tensor:
            total, answers = torch.zeros_like(x), 0
            for part in parts:
                inputs, targets = work.data.batch(part)
                if count := self.task.answers(targets):
                    _, g = self.gradient(x, self.task.unpack(buffers), inputs, targets)
                    total += count * g
                    answers += count
            mean = total / answers if answers else total
            return mean + decay * x if decay else mean

        def full_grad(x: Tensor) -> Tensor:
            return mean_grad(x, in_parts(work.rows))

        def first_grad(x: Tensor) -> Tensor:
            return mean_grad(x, [work.rows[work.batches[0]]])

        return Client(
            t=work.t,
            n=len(work.rows),
            steps=len(work.batches),
            lr=work.local.lr_at(work.t),
            lr0=work.local.lr,
            n_mean=work.n_mean,
            full_grad=full_grad,
            first_grad=first_grad,
        )

    def key(
        self, algorithm: Algorithm, work: Work, purpose: str
    ) -> Keyed | AbstractContextManager[None]:
        """What random numbers are drawn in: they depend on the seed, round and client alone.

        Models and algorithms that drew nothing when they were first seen are spared it.
        """
        if self.still(algorithm):
            return nullcontext()
        seed = number(work.seed, purpose, work.t, work.client)
        return Keyed(self.generator.manual_seed(seed))

    def still(self, algorithm: Algorithm) -> bool:
        """Whether neither the model nor this algorithm is known to draw random numbers."""
        return algorithm in self._still

    def spare(self, algorithm: Algorithm, keyed: object) -> None:
        """Remember whether anything was drawn in a client's round."""
        if isinstance(keyed, Keyed) and not keyed.drew and not self.draws:
            self._still.add(algorithm)


def in_parts(rows: np.ndarray) -> list[np.ndarray]:
    """Rows in parts of few sizes, as a compiled gradient is for one size: CHUNK, smaller powers of
    two down to LEAST, and one of less than twice LEAST with the rest."""
    n, odd = len(rows), len(rows) % LEAST
    last = min(n, LEAST + odd) if odd else 0
    whole, rest = divmod(n - last, CHUNK)
    smaller = [size for power in range(CHUNK.bit_length()) if (size := rest & 1 << power)]
    sizes = [*[CHUNK] * whole, *smaller, *([last] if last else [])]
    return np.split(rows, np.cumsum(sizes)[:-1])


def client_rounds(
    algorithm: Algorithm,
    trainer: Trainer,
    clients: Sequence[tuple[Work, Struct]],
    down: Struct,
    buffers: Tensor,
) -> list[ClientResult]:
    """Local training of some clients: begin, K times direction and move, upload.

    If random numbers may be drawn, clients come one by one, as a trainer has one generator. Clients
    that train alone keep buffers of their own in their memory.
    """
    if len(clients) > 1 and not trainer.still(algorithm):
        singly = (client_rounds(algorithm, trainer, [one], down, buffers) for one in clients)
        return [result for (result,) in singly]
    keyed = trainer.key(algorithm, clients[0][0], "model")
    starts = []
    alone = algorithm.regime == "local" and buffers.numel() > 0
    for work, me in clients:
        own = me.buffers if alone else buffers
        with keyed, named(work, "begin"):
            facts = trainer.facts(work, own)
            local = algorithm.begin(down, me, facts)
        starts.append(ClientStart(work, facts, local, me, trainer.task.unpack(own)))
    results = []
    walked = trainer.walks(algorithm, starts, down, keyed)
    for start, (local, losses) in zip(starts, walked, strict=True):
        with keyed, named(start.work, "upload"):
            up, me = algorithm.upload(local, down, start.me, start.facts)
        own = trainer.task.pack(start.buffers) if start.buffers else buffers
        me |= Struct(buffers=own) if alone else Struct()
        loss = sum(losses) / max(len(losses), 1)
        results.append(ClientResult(up, me, own, loss, start.facts.steps, start.work.samples))
    trainer.spare(algorithm, keyed)
    return results


def client_survey(
    algorithm: Algorithm, trainer: Trainer, work: Work, down: Struct, me: Struct, buffers: Tensor
) -> Struct:
    """One client's answer to the first exchange of a round."""
    with trainer.key(algorithm, work, "survey"), named(work, "survey"):
        return algorithm.survey(down, me, trainer.facts(work, buffers))


class named:
    """Errors inside say where they happened."""

    def __init__(self, work: Work, stage: str) -> None:
        self.work, self.stage = work, stage

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ClientError):
            where = f"round {self.work.t}, client {self.work.client}, {self.stage}"
            raise ClientError(f"{where}: {error}") from error
