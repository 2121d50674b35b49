"""The compiled engine: threads whose local training runs in C++."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from torch import Tensor

from undrift.engines.base import Prepared
from undrift.engines.native.trainer import CompiledTrainer
from undrift.engines.threads import Threads
from undrift.keyed import Keyed
from undrift.training.task import Task


class Compiled(Threads):
    """As `Threads`, but local training is traced once, compiled and run in C++ (docs/speed.md).

    Models and algorithms that cannot be traced run as in `Threads`.
    """

    trainer = CompiledTrainer

    def __init__(self, workers: int | None = None) -> None:
        super().__init__(workers)
        self._prepared: WeakKeyDictionary[Task, Prepared] = WeakKeyDictionary()

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        if task not in self._prepared:
            reason = obstacle(task, inputs, targets)
            self._prepared[task] = (
                Prepared("python", f"{self.workers} workers, in Python: {reason}")
                if reason
                else Prepared("compiled", f"{self.workers} workers, compiled")
            )
        return self._prepared[task]


def obstacle(task: Task, inputs: Tensor, targets: Tensor) -> str | None:
    """Why local steps on batches like this one cannot be traced; None if they can."""
    trainer = CompiledTrainer(task.replica())
    # In Python first: an error there is the model's, not the tracer's.
    for gradient in trainer.task.gradient, trainer.gradient:
        try:
            with Keyed(trainer.generator):
                gradient(task.x0, task.unpack(task.buffers0), inputs, targets)
        except Exception as error:  # training raises it again, with the client and the round
            return f"a step fails: {error}"
    return next(iter(trainer.reasons.values()), None)
