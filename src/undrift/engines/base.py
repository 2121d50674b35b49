"""What an engine is."""

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

    rounding  which arithmetic its local steps use; results with the other differ in rounding
    about     one line for people: how many workers, and why not compiled if so
    """

    rounding: Rounding
    about: str


class Engine(Protocol):
    """Runs one job for many items, each with a trainer, and yields the results in order."""

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> Prepared:
        """Get ready for a task with batches like this one."""
        ...

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        """The results, in the order of the items, which are taken as workers become free."""
        ...
