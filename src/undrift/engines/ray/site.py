"""What runs on a machine of a Ray cluster: the data, the task and a local engine."""

from __future__ import annotations

import logging
import warnings
from dataclasses import replace
from typing import Any

from undrift import arithmetic
from undrift.data.federated import FederatedData
from undrift.engines.auto import Auto
from undrift.engines.base import Prepared
from undrift.engines.ray.wire import Parcel, pack, unpack
from undrift.training.task import Task
from undrift.training.work import Local

ARRAYS = ("inputs", "targets", "order", "offsets", "test_inputs", "test_targets", "held_out")
"""Fields of `FederatedData` that are named in jobs, also where they are parts of other data."""


class Site:
    """An actor, of which each machine has one."""

    def __init__(self, workers: int) -> None:
        self.engine = Auto(workers)
        self.notes = _Notes()
        logging.getLogger("undrift").addHandler(self.notes)
        self.resident: dict[str, Any] = {}
        self.job: tuple[int, Any] = 0, None

    def load(self, task: Parcel, data: Parcel, local: Local) -> tuple[Prepared, dict[str, str]]:
        """Hold a task and data from now on; returns how jobs will run, and what affects rounding.

        The data stay where Ray keeps them: all processes of a machine share one copy.
        """
        with arithmetic.steady(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable")
            held: FederatedData = replace(unpack(data))  # which aligns what is not
            twin: Task = unpack(task).replica()  # whose parameters are views of one vector again
            arrays = {name: getattr(held, name) for name in ARRAYS}
            self.resident = {"task": twin, "data": held, **arrays}
            return self.engine.prepare(twin, held, local), arithmetic.facts()

    def gather(self, number: int, job: Parcel, block: Parcel) -> tuple[Parcel, list[str]]:
        """The sums over a block of clients, and what else the server needs of their results."""
        with arithmetic.steady():
            clients, sums = unpack(block, self.resident)
            results = self.engine.gather(
                self._job(number, job), self.resident["task"], clients, sums
            )
            told = [one.told(clients.deltas) for one in results]
            return pack((sums, told)), self.notes.taken()

    def map(self, number: int, job: Parcel, block: Parcel) -> tuple[Parcel, list[str]]:
        """The results for a block of items."""
        with arithmetic.steady():
            items = unpack(block, self.resident)
            results = self.engine.map(self._job(number, job), self.resident["task"], items)
            return pack(list(results)), self.notes.taken()

    def _job(self, number: int, job: Parcel) -> Any:
        """The job with this number, unpacked once for all its blocks."""
        if self.job[0] != number:
            self.job = number, unpack(job, self.resident)
        return self.job[1]


class _Notes(logging.Handler):
    """Keeps warnings for the driver."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def taken(self) -> list[str]:
        texts, self.texts = self.texts, []
        return texts
