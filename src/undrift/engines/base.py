"""The interface of engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from torch import Tensor

from undrift.training.task import Task
from undrift.training.trainer import Trainer

A = TypeVar("A")
B = TypeVar("B")

Rounding = Literal["compiled", "python"]


@dataclass(frozen=True)
class Prepared:
    """How an engine runs a task.

    rounding  kind of arithmetic of its local steps; results of the two kinds differ in rounding
    about     a line for users: how many workers, and if not compiled, why
    """

    rounding: Rounding
    about: str


class Engine(Protocol):
    """Runs a job for many items and yields the results in order.

    A job is called as `job(trainer, item)`. It may have a method `at_once(trainer, items)`, which
    does several items in one call. Results must not depend on which trainer an item gets.
    """

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        """Prepare for a task with batches of this shape; returns how it will run."""
        ...

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        """The results, in the order of the items; items are read as workers become free."""
        ...
