"""The compiled engine: threads whose local training runs in C++."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from undrift.engines.base import Prepared
from undrift.engines.threads import Threads
from undrift.later import Tensor

if TYPE_CHECKING:
    from undrift.training.task import Task
    from undrift.training.trainer import Trainer


@dataclass(frozen=True)
class Compiled(Threads):
    """As `Threads`, but local training is traced once, compiled and run in C++ (docs/speed.md).

    Models and algorithms that cannot be traced run as in `Threads`.
    """

    def _how(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        if task not in self._known:
            reason = obstacle(task, inputs, targets)
            self._known[task] = (
                Prepared("python", f"{self.count} workers, in Python: {reason}")
                if reason
                else Prepared("compiled", f"{self.count} workers, compiled")
            )
        return self._known[task]

    def _trainer(self, task: Task) -> Trainer:
        from undrift.engines.native.trainer import CompiledTrainer

        return CompiledTrainer(task)

    @cached_property
    def _known(self) -> WeakKeyDictionary[Task, Prepared]:
        return WeakKeyDictionary()


def obstacle(task: Task, inputs: Tensor, targets: Tensor) -> str | None:
    """Why local steps on batches like this one cannot be traced; None if they can."""
    from undrift.engines.native.trainer import CompiledTrainer
    from undrift.keyed import Keyed

    trainer = CompiledTrainer(task.replica())
    # In Python first: an error there is the model's, not the tracer's.
    for gradient in trainer.task.gradient, trainer.gradient:
        try:
            with Keyed(trainer.generator):
                gradient(task.x0, task.unpack(task.buffers0), inputs, targets)
        except Exception as error:  # training raises it again, with the client and the round
            return f"a step fails: {error}"
    return next(iter(trainer.reasons.values()), None)
