"""The default engine: chooses another one by the task's device."""

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

    workers  as for `Threads`

    The choice depends on the task alone, never on measured time, so that repeated runs give the
    same bits. A compiled step is at least as fast as one in Python, for all models.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._compiled, self._sequential = Compiled(workers), Sequential()

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        return self._engine(task).prepare(task, inputs, targets)

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        return self._engine(task).map(job, task, items)

    def _engine(self, task: Task) -> Engine:
        return self._compiled if task.x0.device.type == "cpu" else self._sequential
