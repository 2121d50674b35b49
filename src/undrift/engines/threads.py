"""One worker a core, each with one thread for arithmetic and a model of its own."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch

from undrift.config import UndriftError
from undrift.local import Trainer
from undrift.task import Task

A = TypeVar("A")
B = TypeVar("B")


class Threads:
    """Clients run side by side, one worker a core; results are the same for any number of them.

    workers  how many; all cores that this process may use if not given
    """

    trainer: type[Trainer] = Trainer

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise UndriftError(f"workers={workers}: must be at least 1")
        self.workers = workers or cores()
        self._pool: ThreadPoolExecutor | None = None
        self._trainers: WeakKeyDictionary[Task, SimpleQueue[Trainer]] = WeakKeyDictionary()

    def map(
        self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]
    ) -> Iterator[B]:
        pool, free = self._ready(task)

        def run(item: A) -> B:
            trainer = free.get()
            try:
                return job(trainer, item)
            finally:
                free.put(trainer)

        waiting: deque[Future[B]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(run, item))
                if len(waiting) > 2 * self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _ready(self, task: Task) -> tuple[ThreadPoolExecutor, SimpleQueue[Trainer]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.workers, "undrift", torch.set_num_threads, (1,))
        if task not in self._trainers:
            free: SimpleQueue[Trainer] = SimpleQueue()
            for _ in range(self.workers):
                free.put(self.trainer(task.replica()))
            self._trainers[task] = free
        return self._pool, self._trainers[task]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
