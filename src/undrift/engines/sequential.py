"""The sequential engine: one client after another, in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from undrift.engines.base import A, B, InProcess, Prepared
from undrift.later import Tensor

if TYPE_CHECKING:
    from undrift.training.task import Task
    from undrift.training.trainer import Trainer


@dataclass(frozen=True)
class Sequential(InProcess):
    """One client after another, in the calling thread: for small work and for debugging."""

    def _how(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        return Prepared("python", "one client after another, in Python")

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        from undrift.training.trainer import Trainer

        trainer = Trainer(task)
        return (job(trainer, item) for item in items)
