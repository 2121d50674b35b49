"""Threads whose local training runs as a recorded program, and the choice between engines."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor

from undrift import native
from undrift.engines.sequential import Engine, Sequential
from undrift.engines.threads import Threads
from undrift.keyed import Keyed
from undrift.local import Trainer
from undrift.native.recorded import Recorded
from undrift.task import Task

A = TypeVar("A")
B = TypeVar("B")


class Compiled(Threads):
    """As `Threads`, with local training recorded once and run without Python (docs/speed.md).

    What cannot be recorded runs as in `Threads`.
    """

    trainer = Recorded

    def __init__(self, workers: int | None = None) -> None:
        super().__init__(workers)
        self._about: WeakKeyDictionary[Task, str] = WeakKeyDictionary()

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> str:
        if task not in self._about:
            reason, _ = trial(task, inputs, targets)
            self._about[task] = _told(self.workers, reason)
        return self._about[task]


class Auto:
    """`Compiled` where it works and pays, else `Threads`; on a GPU, `Sequential`.

    workers  as of `Threads`

    The choice depends on a short trial, made once for a model on a machine and remembered in the
    cache folder, so that a run that is repeated gives the same bits.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.threads, self.compiled = Threads(workers), Compiled(workers)
        self._chosen: WeakKeyDictionary[Task, tuple[Engine, str]] = WeakKeyDictionary()

    def prepare(self, task: Task, inputs: Tensor, targets: Tensor) -> str:
        if task not in self._chosen:
            self._chosen[task] = self._choose(task, inputs, targets)
        return self._chosen[task][1]

    def _choose(self, task: Task, inputs: Tensor, targets: Tensor) -> tuple[Engine, str]:
        if task.x0.device.type != "cpu":
            return Sequential(), f"one client after another, on {task.x0.device}"
        reason = _remembered(task, inputs, targets)
        return self.threads if reason else self.compiled, _told(self.threads.workers, reason)

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        engine, _ = self._chosen.get(task, (self.threads, ""))
        return engine.map(job, task, items)


def _told(workers: int, reason: str | None) -> str:
    """What an engine does, in a line."""
    return f"{workers} workers, " + (f"in Python: {reason}" if reason else "compiled")


def _remembered(task: Task, inputs: Tensor, targets: Tensor) -> str | None:
    """Why this model should not run compiled, from the cache or from a trial."""
    if reason := native.problem():
        return reason
    loss = getattr(task.loss, "__qualname__", type(task.loss).__qualname__)
    about = (str(task.model), loss, len(task.x0), task.x0.dtype, inputs.shape, inputs.dtype)
    key = hashlib.sha256(repr((native.fingerprint(), about)).encode()).hexdigest()[:16]
    file = native.folder() / "trials" / f"{key}.json"
    if file.exists():
        found: str | None = json.loads(file.read_text())
        return found
    reason, ratio = trial(task, inputs, targets)
    if reason is None and ratio < 0.9:
        reason = f"compiled, a step takes {1 / ratio:.1f} times as long"
    if not math.isnan(ratio):
        with suppress(OSError):  # a cache that cannot be written
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(reason))
    return reason


def trial(task: Task, inputs: Tensor, targets: Tensor) -> tuple[str | None, float]:
    """Why a model cannot be recorded, if it cannot, and how much faster a recorded step is."""
    trainer = Recorded(task.replica())
    seconds = []
    for gradient in (trainer.task.gradient, trainer.gradient):
        for _ in range(3):
            began = time.perf_counter()
            try:
                with Keyed(trainer.generator):
                    gradient(task.x0, task.unpack(task.buffers0), inputs, targets)
            except Exception as error:  # a client will meet it again, and say where
                return f"a step fails: {error}", math.nan
            last = time.perf_counter() - began
        seconds.append(last)
    return next(iter(trainer.reasons.values()), None), seconds[0] / seconds[1]
