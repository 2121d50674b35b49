"""The threaded engine: one worker thread per core, each with its own copy of the model."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from operator import length_hint
from queue import SimpleQueue
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from undrift.config import UndriftError
from undrift.engines.base import A, B, Prepared
from undrift.training.task import Task
from undrift.training.trainer import Trainer

BLOCK_SECONDS, LARGEST = 0.008, 16
"""A worker takes clients in blocks of about 8 ms, at most 16, to amortise scheduling."""


class Threads:
    """Clients run in parallel.

    workers  how many; one for each core that this process may use if not given

    Results have the same bits for any number of workers: a client's random numbers depend on seed,
    round and client only, each worker computes with one thread, and the server gets the results in
    the order of the clients.
    """

    trainer: type[Trainer] = Trainer

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise UndriftError(f"workers={workers}: must be at least 1")
        self.workers = workers or cores()
        self._pool: ThreadPoolExecutor | None = None
        self._pace: dict[type, float] = {}  # kind of job -> seconds per item
        self._free: WeakKeyDictionary[Task, SimpleQueue[Trainer]] = WeakKeyDictionary()

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        return Prepared("python", f"{self.workers} workers, in Python")

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        pool, free = self._ready(task)
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
        share = math.ceil(length_hint(items, LARGEST) / (2 * self.workers)) or 1
        try:
            while block := list(islice(waiting, min(share, self._block(type(job))))):
                running.append(pool.submit(run, block))
                # Two blocks per worker keep all busy. More would hold more results in memory, and
                # read client records earlier than needed.
                if len(running) > 2 * self.workers:
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

    def _ready(self, task: Task) -> tuple[ThreadPoolExecutor, SimpleQueue[Trainer]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers, "undrift", _single)
        if task not in self._free:
            self._free[task] = SimpleQueue()
            for _ in range(self.workers):
                self._free[task].put(self.trainer(task.replica()))
        return self._pool, self._free[task]


def _at_once(job: Callable[[Trainer, A], B], trainer: Trainer, block: list[A]) -> list[B]:
    """Run a job for several items, in one call if the job can."""
    faster: Callable[[Trainer, list[A]], list[B]] | None = getattr(job, "at_once", None)
    return faster(trainer, block) if faster else [job(trainer, item) for item in block]


def _single() -> None:
    """Make torch compute with one thread in this worker."""
    torch.set_num_threads(1)
    torch.get_num_threads()  # fixes it: at first use, a thread takes over the number of that time


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
