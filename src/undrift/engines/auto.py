"""The engine that chooses by the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from torch import Tensor

from undrift.engines.base import A, B, Engine, Prepared
from undrift.engines.compiled import Compiled
from undrift.engines.sequential import Sequential
from undrift.training.task import Task
from undrift.training.trainer import Trainer


class Auto:
    """`Compiled`, or `Sequential` on a GPU.

    workers  as of `Threads`

    The choice depends on the task alone, never on a clock, so that a run that is repeated gives the
    same bits. A compiled step is as fast as one in Python or faster, whatever the model.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._compiled, self._sequential = Compiled(workers), Sequential()

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        return self._engine(task).prepare(task, inputs, targets)

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        return self._engine(task).map(job, task, items)

    def _engine(self, task: Task) -> Engine:
        return self._compiled if task.x0.device.type == "cpu" else self._sequential
