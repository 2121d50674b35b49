"""What passes between the server and one client in a round, where the client runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from undrift.core import Algorithm, Struct
from undrift.federation.aggregate import first_bad, nbytes
from undrift.training.memory import Store
from undrift.training.trainer import Delivery, Trainer, Work, client_rounds, client_survey


@dataclass(frozen=True)
class Answer:
    """What the server makes of one client's answer, where the client runs."""

    record: Struct
    """what joins the mean"""
    bytes_up: int
    bad: str | None
    """the first quantity that is not finite"""
    side: Struct = Struct()
    """what is averaged beside it: buffers if there are any, the update if `record` has another"""
    loss: float = 0.0
    square: float = 0.0
    """squared length of the update"""
    delta: Tensor | None = None
    memory: Struct = Struct()
    steps: int = 0
    samples: int = 0


@dataclass(frozen=True)
class Items:
    """Work and memory of the clients of a round; memories are read when their turn comes."""

    works: Sequence[Work]
    memories: Store
    fresh: Struct

    def __len__(self) -> int:
        return len(self.works)

    def __iter__(self) -> Iterator[tuple[Work, Struct]]:
        return ((work, self.memories.get(work.client, self.fresh)) for work in self.works)


@dataclass(frozen=True)
class Survey:
    """The first exchange of a round, for one client."""

    algorithm: Algorithm
    down: Struct
    buffers: Tensor

    def __call__(self, trainer: Trainer, item: tuple[Work, Struct]) -> Answer:
        work, me = item
        answer = client_survey(self.algorithm, trainer, work, self.down, me, self.buffers)
        return Answer(answer, nbytes(answer), first_bad(answer))


@dataclass(frozen=True)
class Exchange:
    """Local training and what the server makes of the upload, for one client."""

    algorithm: Algorithm
    server: Struct
    down: Struct
    buffers: Tensor

    def __call__(self, trainer: Trainer, item: tuple[Work, Struct]) -> Answer:
        return self.at_once(trainer, [item])[0]

    def at_once(self, trainer: Trainer, items: Sequence[tuple[Work, Struct]]) -> list[Answer]:
        """The same for several clients, which takes less time."""
        got = client_rounds(self.algorithm, trainer, items, self.down, self.buffers)
        return [self._answer(one, trainer.task.groups) for one in got]

    def _answer(self, got: Delivery, groups: tuple[int, ...]) -> Answer:
        record = self.algorithm.receive(self.server, got.up, groups)
        delta: Tensor = got.up.delta
        square = float(delta @ delta)
        finite = [delta] if math.isfinite(square) else []
        side = Struct()
        if got.buffers.numel():
            side |= Struct(buffers=got.buffers)
        if self.algorithm.holistic or record.delta is not delta:
            side |= Struct(delta=delta)
        return Answer(
            record=record,
            bytes_up=nbytes(got.up) + got.buffers.nbytes,
            bad=first_bad(got.up, record, side, got.me, Struct(loss=got.loss), good=finite),
            side=side,
            loss=got.loss,
            square=square,
            delta=delta,
            memory=got.me,
            steps=got.steps,
            samples=got.samples,
        )
