"""The threaded engine: one worker thread per core, each with its own copy of the model."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import length_hint
from queue import SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from undrift.arithmetic import settle
from undrift.config import whole
from undrift.engines.base import A, B, InProcess, Prepared
from undrift.later import Tensor, torch

if TYPE_CHECKING:
    from undrift.training.task import Task
    from undrift.training.trainer import Trainer

BLOCK_SECONDS, LARGEST = 0.008, 16
"""A worker takes clients in blocks of about 8 ms, at most 16, to amortise scheduling."""


@dataclass(frozen=True)
class Threads(InProcess):
    """Clients run in parallel.

    workers  how many; one for each core that this process may use if not given

    Results have the same bits for any number of workers: a client's random numbers depend on seed,
    round and client only, each worker computes with one thread, and the server gets the results in
    the order of the clients.
    """

    workers: int | None = whole(None, ge=1, optional=True)

    @cached_property
    def count(self) -> int:
        """Number of workers."""
        return self.workers or cores()

    def _how(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        return Prepared("python", f"{self.count} workers, in Python")

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        free = self._free(task)
        stop = torch.zeros(1, dtype=torch.uint8)  # a tensor, which C++ can read while it runs

        def run(block: list[A]) -> list[B]:
            trainer, began = free.get(), time.perf_counter()
            trainer.stop = stop
            try:
                return _at_once(job, trainer, block)
            finally:
                free.put(trainer)
                self._pace[type(job)] = (time.perf_counter() - began) / len(block)

        running: deque[Future[list[B]]] = deque()
        waiting = iter(items)
        share = math.ceil(length_hint(items, LARGEST) / (2 * self.count)) or 1
        try:
            while block := list(islice(waiting, min(share, self._block(type(job))))):
                running.append(self._pool.submit(run, block))
                # Two blocks per worker keep all busy. More would hold more results in memory, and
                # read client records earlier than needed.
                if len(running) > 2 * self.count:
                    yield from running.popleft().result()
            while running:
                yield from running.popleft().result()
        finally:  # after an error or an interrupt, the other results are not needed
            stop.fill_(1)
            for future in running:
                future.cancel()
            wait(running)

    def _block(self, kind: type) -> int:
        """How many items make a block of about BLOCK_SECONDS. It depends on measured time, which is
        safe: results do not depend on blocks."""
        return max(1, min(LARGEST, int(BLOCK_SECONDS / self._pace.get(kind, BLOCK_SECONDS))))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count, "undrift", settle)

    @cached_property
    def _pace(self) -> dict[type, float]:
        """Kind of job → seconds per item."""
        return {}

    @cached_property
    def _trainers(self) -> WeakKeyDictionary[Task, SimpleQueue[Trainer]]:
        return WeakKeyDictionary()

    def _trainer(self, task: Task) -> Trainer:
        """A worker's trainer."""
        from undrift.training.trainer import Trainer

        return Trainer(task)

    def _free(self, task: Task) -> SimpleQueue[Trainer]:
        """The trainers of a task that are free."""
        if task not in self._trainers:
            self._trainers[task] = SimpleQueue()
            for _ in range(self.count):
                self._trainers[task].put(self._trainer(task.replica()))
        return self._trainers[task]


def _at_once(job: Callable[[Trainer, A], B], trainer: Trainer, block: list[A]) -> list[B]:
    """Run a job for several items, in one call if the job can."""
    faster: Callable[[Trainer, list[A]], list[B]] | None = getattr(job, "at_once", None)
    return faster(trainer, block) if faster else [job(trainer, item) for item in block]


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
