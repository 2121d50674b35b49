"""The jobs of a round that an engine maps over clients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from undrift.core import Algorithm, Struct
from undrift.federation.aggregate import first_bad, nbytes
from undrift.training.trainer import ClientResult, Trainer, Work, client_rounds, client_survey


@dataclass(frozen=True)
class ClientQueue:
    """Work and record of each client of a round; a record is read when its client's turn comes."""

    works: Sequence[Work]
    memories: Mapping[int, Struct]
    fresh: Struct
    weights: Sequence[float]
    """before normalisation"""
    deltas: bool = False
    """whether the server needs single updates, beside their mean"""

    def __len__(self) -> int:
        return len(self.works)

    def __iter__(self) -> Iterator[tuple[Work, Struct]]:
        return ((work, self.memories.get(work.client, self.fresh)) for work in self.works)

    def part(self, places: slice) -> ClientQueue:
        """The clients of some places, with their records, to be sent elsewhere."""
        works = self.works[places]
        records = {work.client: self.memories.get(work.client, self.fresh) for work in works}
        return ClientQueue(works, records, Struct(), self.weights[places], self.deltas)


@dataclass(frozen=True)
class SurveyJob:
    """One client's job in the survey, the first exchange of a round; it changes no state."""

    algorithm: Algorithm
    down: Struct
    buffers: Tensor

    def __call__(self, trainer: Trainer, item: tuple[Work, Struct]) -> ClientResult:
        work, me = item
        up = client_survey(self.algorithm, trainer, work, self.down, me, self.buffers)
        bad = first_bad(up)
        return ClientResult(up, Struct(), self.buffers, record=up, bytes_up=nbytes(up), bad=bad)


@dataclass(frozen=True)
class TrainJob:
    """One client's local training, and the reduction of its upload to what the server needs.

    The reduction (`receive`, norms, checks) runs on the worker, in parallel with other clients.
    """

    algorithm: Algorithm
    server: Struct
    down: Struct
    buffers: Tensor

    def __call__(self, trainer: Trainer, item: tuple[Work, Struct]) -> ClientResult:
        return self.at_once(trainer, [item])[0]

    def at_once(self, trainer: Trainer, items: Sequence[tuple[Work, Struct]]) -> list[ClientResult]:
        """The same for several clients in one call, to amortise its overhead."""
        got = client_rounds(self.algorithm, trainer, items, self.down, self.buffers)
        return [self.receive(one, trainer.task.groups) for one in got]

    def receive(self, got: ClientResult, groups: tuple[int, ...]) -> ClientResult:
        """The result with what the server needs of it."""
        record = self.algorithm.receive(self.server, got.up, groups)
        delta: Tensor = got.up.delta
        square = float(delta @ delta)
        finite = [delta] if math.isfinite(square) else []  # spares `first_bad` a pass over it
        side = Struct()
        if got.buffers.numel():
            side |= Struct(buffers=got.buffers)
        # The mean of the raw deltas is needed too. It is that of record.delta if `receive` passes
        # delta through and the mean is a plain one.
        if self.algorithm.holistic or record.delta is not delta:
            side |= Struct(delta=delta)
        return replace(
            got,
            record=record,
            side=side,
            square=square,
            bytes_up=nbytes(got.up) + got.buffers.nbytes,
            bad=first_bad(got.up, record, side, got.me, Struct(loss=got.loss), good=finite),
        )
