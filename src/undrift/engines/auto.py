"""The default engine: chooses another one by the task's device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from undrift.config import Config, whole
from undrift.data.federated import FederatedData
from undrift.engines.base import A, B, ClientJob, Clients, InProcess, Prepared, Sums
from undrift.engines.compiled import Compiled
from undrift.engines.sequential import Sequential
from undrift.training.work import Local

if TYPE_CHECKING:
    from undrift.training.task import Task
    from undrift.training.trainer import ClientResult, Trainer


@dataclass(frozen=True)
class Auto(Config):
    """`Compiled`, or `Sequential` on a GPU.

    workers  as for `Threads`

    The choice depends on the task alone, never on measured time, so that repeated runs give the
    same bits. A compiled step is at least as fast as one in Python, for all models.
    """

    workers: int | None = whole(None, ge=1, optional=True)

    def prepare(self, task: Task, data: FederatedData, local: Local) -> Prepared:
        return self._engine(task).prepare(task, data, local)

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        return self._engine(task).map(job, task, items)

    def gather(
        self, job: ClientJob, task: Task, clients: Clients, into: Sums
    ) -> Iterator[ClientResult]:
        return self._engine(task).gather(job, task, clients, into)

    def close(self) -> None:
        self._compiled.close()

    def _engine(self, task: Task) -> InProcess:
        return self._compiled if task.x0.device.type == "cpu" else Sequential()

    @cached_property
    def _compiled(self) -> Compiled:
        return Compiled(self.workers)
