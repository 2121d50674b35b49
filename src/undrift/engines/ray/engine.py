"""The Ray engine: clients run on several machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING

from undrift.config import Config, flag, text, whole
from undrift.data.federated import FederatedData
from undrift.engines.base import (
    A,
    B,
    ClientJob,
    Clients,
    Prepared,
    Sums,
    refuse_misfit,
    typical_batch,
)
from undrift.training.work import Local

if TYPE_CHECKING:
    from undrift.engines.ray.fleet import Fleet
    from undrift.training.task import Task
    from undrift.training.trainer import ClientResult, Trainer


@dataclass(frozen=True)
class Ray(Config):
    """Several machines: a Ray cluster. On one machine, `Auto` is faster.

    address  of the cluster's head, such as "10.0.0.1:6379"; "auto": the cluster of this machine
    workers  on each machine; one for each of its CPUs if not given
    mixed    accept machines that round differently (other CPUs); results may then differ in their
             last digits from run to run

    Every machine needs the same versions of undrift, torch and ray. Results have the bits of
    `Auto` on one of the machines, also if machines fail, leave or join.
    """

    address: str = text("auto")
    _: KW_ONLY
    workers: int | None = whole(None, ge=1, optional=True)
    mixed: bool = flag(False)

    def prepare(self, task: Task, data: FederatedData, local: Local) -> Prepared:
        batch = typical_batch(data, local)
        if batch is None:
            return Prepared("python", "no client has samples")
        refuse_misfit(task, data, *batch)
        return self._fleet.load(task, data, local)

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        self._fleet.recall(task)
        step = self._block(length_hint(items, 0))
        waiting = iter(items)
        blocks = iter(lambda: list(islice(waiting, step)), [])
        for results in self._fleet.run("map", job, blocks):
            yield from results

    def gather(
        self, job: ClientJob, task: Task, clients: Clients, into: Sums
    ) -> Iterator[ClientResult]:
        self._fleet.recall(task)
        step, places = self._block(len(clients)), len(clients)
        blocks = (
            (clients.part(slice(place, place + step)), into.empty())
            for place in range(0, places, step)
        )
        for sums, results in self._fleet.run("gather", job, blocks):
            into.join(sums)
            yield from results

    def close(self) -> None:
        if "_fleet" in vars(self):
            self._fleet.close()

    def _block(self, items: int) -> int:
        """How many items travel together."""
        return block_size(items, len(self._fleet.sites), self._fleet.workers)

    @cached_property
    def _fleet(self) -> Fleet:
        from undrift.engines.ray.fleet import Fleet

        return Fleet(self.address, self.workers, self.mixed)


def block_size(items: int, sites: int, workers: int) -> int:
    """A power of two, so that the sums of blocks join.

    It leaves every site about four blocks, which evens out their speeds, but keeps the workers of a
    site busy as long as all sites have something to do. `items` is 0 if unknown.
    """
    sites = max(1, sites)
    if not items:
        return _power(2 * workers)
    busy = min(_power(workers), _power(items / sites))
    return max(_power(items / (4 * sites)), busy)


def _power(number: float) -> int:
    """The largest power of two up to a number; at least 1."""
    return 1 << max(0, math.floor(math.log2(max(1, number))))
