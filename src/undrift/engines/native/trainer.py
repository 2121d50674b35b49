"""The compiled engine's trainer: traces, compiles and runs local steps in C++."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import groupby
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core import Algorithm, Struct
from undrift.engines.native.launch import CHUNK_BYTES, Launch, LaunchQueue
from undrift.engines.native.library import problem
from undrift.engines.native.program import Program, compile_gradient
from undrift.engines.native.step import BoundStep, Step, compile_step
from undrift.engines.native.trace import NotTraceable
from undrift.keyed import Keyed
from undrift.rng import stream
from undrift.training.task import Task
from undrift.training.trainer import ClientError, ClientStart, Trainer, Work, named

SHAPES = 64
"""Size of the cache of programs: one for each shape of a batch."""

STEPS = 256
"""Size of the cache of compiled local steps: one for each set of numbers in them."""

TRACING = Lock()
"""One trace at a time: it keeps all intermediate results of a step in memory."""


class CompiledTrainer(Trainer):
    """Runs all local steps of a client in one C++ call.

    The first batch of each shape is traced, and the program is compared with PyTorch. Models and
    algorithms that cannot be traced are trained in Python, by the base class.

    reasons  why training runs in Python; key: None for all of it, a batch shape, or an algorithm
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.buffers = task.unpack(task.buffers0)
        self.programs: dict[Any, Program] = {}
        self.steps: dict[Any, Step] = {}
        self.reasons: dict[Any, str] = {}
        if reason := problem():
            self.reasons[None] = reason
        if task.x0.device.type != "cpu":
            self.reasons[None] = f"programs do not run on {task.x0.device}"

    def gradient(
        self, x: Tensor, buffers: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        program = self._program(inputs, targets, torch.arange(len(targets))[None])
        if program is None:
            return super().gradient(x, buffers, inputs, targets)
        self._load(buffers)
        self.task.x.copy_(x)
        program.inputs.copy_(inputs)
        program.targets.copy_(targets)
        program.code.run()
        self._store(buffers)
        return program.loss.clone(), self.task.g.clone()

    def walks(
        self,
        algorithm: Algorithm,
        starts: Sequence[ClientStart],
        down: Struct,
        keyed: AbstractContextManager[object],
    ) -> list[tuple[Struct, list[float]]]:
        if None in self.reasons or algorithm in self.reasons:
            return super().walks(algorithm, starts, down, keyed)
        queue = LaunchQueue(self.stop)
        try:
            walked = [self._enqueue(algorithm, start, down, keyed, queue) for start in starts]
        except NotTraceable as reason:
            self.reasons[algorithm] = str(reason)
            _say(f"{algorithm!r} trains in Python: {reason}")
            return super().walks(algorithm, starts, down, keyed)
        except ClientError:
            queue.run()  # if an earlier client fails too, its error is raised: the first counts
            raise
        queue.run()
        return walked

    def _enqueue(
        self,
        algorithm: Algorithm,
        start: ClientStart,
        down: Struct,
        keyed: AbstractContextManager[object],
        queue: LaunchQueue,
    ) -> tuple[Struct, list[float]]:
        """Queue a client's steps; returns its variables and losses, valid once the queue has run.

        A client with a batch that has no program is trained in Python instead, immediately.
        """
        work = start.work
        losses: list[float] = []
        homes: dict[str, Tensor] = {}
        bound = self._bind(algorithm, start, start.local, down, homes)
        one_by_one = bound.step.renumbers
        self._load(start.buffers)
        for k, (inputs, targets, rows) in enumerate(_chunks(work, one_by_one)):
            program = self._program(inputs, targets, rows)
            if program is None:
                queue.drop(work)
                self.key(algorithm, work, "model")  # restart the client's random numbers
                return self.walk(algorithm, start, down, keyed)
            if k and one_by_one:
                bound = self._bind(algorithm, start, bound.local, down, homes)
            elif k:
                bound = bound.resumed
            queue.add(Launch(work, program, bound, inputs, targets, rows, losses))
        if self.buffers:  # all programs share one set of buffers: run before the next client's load
            queue.run()
            self._store(start.buffers)
        return bound.local, losses

    def _bind(
        self,
        algorithm: Algorithm,
        start: ClientStart,
        local: Struct,
        down: Struct,
        homes: dict[str, Tensor],
    ) -> BoundStep:
        """The next local step of a client; the compiled step comes from the cache if possible."""
        client, decay = start.facts, start.work.local.weight_decay
        records = [dict(record.leaves()) for record in (local, down, start.me)]
        numbers = (
            value
            for record in records
            for value in record.values()
            if not isinstance(value, Tensor)
        )
        facts = (client.t, client.n, client.steps, client.lr, client.lr0, client.n_mean)
        key = (algorithm, decay, *facts, *numbers)
        found = self.steps.get(key)
        if found is None:
            if len(self.steps) == STEPS:
                self.steps.clear()
            found = self.steps[key] = compile_step(algorithm, local, down, start.me, client, decay)
        return found.bind(records, self.task.x, self.task.g, homes)

    def _load(self, buffers: dict[str, Tensor]) -> None:
        for name, buffer in self.buffers.items():
            buffer.copy_(buffers[name])

    def _store(self, buffers: dict[str, Tensor]) -> None:
        for name, buffer in self.buffers.items():
            buffers[name] = buffer.clone()

    def _program(self, inputs: Tensor, targets: Tensor, rows: Tensor) -> Program | None:
        """The program for batches of this shape, compiled if new; None if that is impossible."""
        key = (rows.shape[1], inputs.shape[1:], inputs.dtype, targets.shape[1:], targets.dtype)
        if None in self.reasons or key in self.reasons:
            return None
        if key not in self.programs:
            try:
                with TRACING:
                    program = self._compile(inputs[rows[0]], targets[rows[0]])
                    torch.ops.undrift.trim()
            except Exception as reason:  # of any kind: PyTorch may still be able to run it
                self.reasons[key] = str(reason)
                _say(f"{type(self.task.model).__name__} trains in Python: {reason}")
                return None
            if len(self.programs) == SHAPES:
                del self.programs[next(iter(self.programs))]
            self.programs[key] = program
            self.draws |= program.draws
        return self.programs[key]

    def _compile(self, inputs: Tensor, targets: Tensor) -> Program:
        """A new program, after comparing it with PyTorch on another batch than the traced one."""
        state, before = self.generator.get_state(), {k: v.clone() for k, v in self.buffers.items()}
        x = self.task.x.clone()
        try:
            program = compile_gradient(self.task, self.buffers, inputs, targets, self.generator)
            inputs.copy_(inputs.flip(0))
            there, buffers = 0.9 * x, {k: v.clone() for k, v in before.items()}
            self.generator.set_state(state)
            with Keyed(self.generator):
                loss, g = super().gradient(there, buffers, inputs, targets)
            self.generator.set_state(state)
            self._load(before)
            program.code.run()
            found = [program.loss, self.task.g, *self.buffers.values()]
            for wanted, got in zip([loss, g, *buffers.values()], found, strict=True):
                if not _near(wanted, got):
                    raise NotTraceable("the traced step gives another result than PyTorch itself")
        finally:
            self.task.x.copy_(x)
            self.generator.set_state(state)
            self._load(before)
        return program


@cache
def _say(message: str) -> None:
    """Log a warning once per process, though every worker meets its cause."""
    logging.getLogger("undrift").warning(message)


def _near(wanted: Tensor, got: Tensor) -> bool:
    """Whether two results differ by rounding only, relative to the largest value.

    Values that are not finite are ignored: whether a step runs compiled must not depend on the
    batch that a worker happens to get first.
    """
    known = wanted.isfinite()
    wanted, got = wanted[known].double(), got[known].double()
    room = 1e-3 * float(wanted.abs().max()) + 1e-6 if wanted.numel() else 0.0
    return torch.allclose(wanted, got, rtol=1e-3, atol=room)


Chunk = tuple[Tensor, Tensor, Tensor]
"""Inputs, targets, and one row per step: positions of its batch in them."""


def _chunks(work: Work, one_by_one: bool) -> Iterator[Chunk]:
    """A client's steps, in chunks that can be launched together: with batches of one shape."""
    data, batches = work.data, work.batches
    equal = isinstance(batches, np.ndarray)
    groups = [batches] if equal else (list(some) for _, some in groupby(batches, len))
    with named(work, "local steps"):
        if data.transform is None:
            yield from _gathered(data.inputs, data.targets, work.rows, groups, one_by_one)
        elif data.fixed and data.example.nbytes * len(work.rows) <= CHUNK_BYTES:
            rows = np.arange(len(work.rows))
            yield from _gathered(*data.batch(work.rows), rows, groups, one_by_one)
        else:
            yield from _augmented(work, groups, one_by_one)


def _gathered(
    inputs: Tensor, targets: Tensor, rows: np.ndarray, groups: Iterable[Any], one_by_one: bool
) -> Iterator[Chunk]:
    """Chunks of batches that are rows of these inputs and targets."""
    for group in groups:
        places = torch.from_numpy(rows[np.asarray(group)])
        for some in places[:, None] if one_by_one else [places]:
            yield inputs, targets, some


def _augmented(work: Work, groups: Iterable[Any], one_by_one: bool) -> Iterator[Chunk]:
    """Chunks of batches that are augmented anew for each step, up to CHUNK_BYTES each."""
    data, rng = work.data, stream(work.seed, "augmentation", work.t, work.client)
    for group in groups:
        size = data.example.nbytes * len(group[0])
        count = 1 if one_by_one else max(1, CHUNK_BYTES // size)
        for k in range(0, len(group), count):
            made = [data.batch(work.rows[batch], rng) for batch in group[k : k + count]]
            inputs, targets = (torch.cat(parts) for parts in zip(*made, strict=True))
            yield inputs, targets, torch.arange(len(targets)).view(len(made), -1)
