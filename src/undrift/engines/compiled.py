"""Threads whose local training runs as a recorded program, and the engine for everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor

from undrift.engines.native.trainer import CompiledTrainer
from undrift.engines.sequential import Engine, Sequential
from undrift.engines.threads import Threads
from undrift.keyed import Keyed
from undrift.training.task import Task
from undrift.training.trainer import Trainer

A = TypeVar("A")
B = TypeVar("B")


class Compiled(Threads):
    """As `Threads`, with local training recorded once and run without Python (docs/speed.md).

    What cannot be recorded runs as in `Threads`.
    """

    trainer = CompiledTrainer

    def __init__(self, workers: int | None = None) -> None:
        super().__init__(workers)
        self._about: WeakKeyDictionary[Task, str] = WeakKeyDictionary()

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> str:
        if task not in self._about:
            reason = obstacle(task, inputs, targets)
            how = f"in Python: {reason}" if reason else "compiled"
            self._about[task] = f"{self.workers} workers, {how}"
        return self._about[task]


class Auto:
    """`Compiled`, or `Sequential` on a GPU.

    workers  as of `Threads`

    The choice depends on the task alone, never on a clock, so that a run that is repeated gives the
    same bits. A recorded step is as fast as one in Python or faster, whatever the model.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._compiled, self._sequential = Compiled(workers), Sequential()

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> str:
        return self._engine(task).prepare(task, inputs, targets)

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        return self._engine(task).map(job, task, items)

    def _engine(self, task: Task) -> Engine:
        return self._compiled if task.x0.device.type == "cpu" else self._sequential


def obstacle(task: Task, inputs: Tensor, targets: Tensor) -> str | None:
    """Why local steps on batches like this one cannot be recorded, if they cannot."""
    trainer = CompiledTrainer(task.replica())
    for gradient in trainer.task.gradient, trainer.gradient:  # in Python first, for its errors
        try:
            with Keyed(trainer.generator):
                gradient(task.x0, task.unpack(task.buffers0), inputs, targets)
        except Exception as error:  # a client will meet it again, and say where
            return f"a step fails: {error}"
    return next(iter(trainer.reasons.values()), None)
