"""One client after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from torch import Tensor

from undrift.training.task import Task
from undrift.training.trainer import Trainer

A = TypeVar("A")
B = TypeVar("B")


class Engine(Protocol):
    """Runs one job for many items, each with a trainer, and yields the results in order."""

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> str:
        """Get ready for a task with batches like this one, and say in a line what is done how."""
        ...

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        """The results, in the order of the items, which are taken as workers become free."""
        ...


class Sequential:
    """One client after another, in the calling thread: for small work and for debugging."""

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> str:
        return "one client after another, in Python"

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        trainer = Trainer(task)
        return (job(trainer, item) for item in items)
