"""A trainer whose local steps run as recorded programs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from itertools import groupby
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core import Algorithm, Client, Struct
from undrift.local import Trainer, Work
from undrift.native import problem
from undrift.native.program import Program, Unsuitable, record
from undrift.native.rule import Recipe, Step, recipe
from undrift.rng import Keyed, stream
from undrift.task import Task

CHUNK_BYTES = 2**25
"""Transformed inputs that are made before the steps that read them run."""

SHAPES = 32
"""Programs that are kept: one for each shape of a batch."""

RECIPES = 256
"""Recipes of local steps that are kept: one for each set of numbers in them."""

RECORDING = Lock()
"""One at a time, since a recording holds all that a step computes."""


class Recorded(Trainer):
    """Runs all local steps of a client as one call, recorded from PyTorch's own operators.

    The first batch of each shape is recorded and checked against PyTorch itself. Models that cannot
    be recorded, and algorithms whose local step cannot, are trained as every trainer does.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.buffers = task.unpack(task.buffers0)
        self.programs: dict[Any, Program] = {}
        self.recipes: dict[Any, Recipe] = {}
        self.reasons: dict[Any, str] = {}
        """why everything (None), batches of a shape or an algorithm's clients run in Python"""
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

    def walk(
        self,
        algorithm: Algorithm,
        work: Work,
        c: Client,
        local: Struct,
        down: Struct,
        me: Struct,
        buffers: dict[str, Tensor],
        keyed: AbstractContextManager[object],
    ) -> tuple[Struct, Tensor]:
        plain = (algorithm, work, c, local, down, me, buffers, keyed)
        if None in self.reasons or algorithm in self.reasons:
            return super().walk(*plain)
        homes: dict[str, Tensor] = {}
        losses: list[Tensor] = []
        try:
            now = self._step(algorithm, work, c, local, down, me, homes)
        except Unsuitable as reason:
            self.reasons[algorithm] = str(reason)
            _say(f"{algorithm!r} trains in Python: {reason}")
            return super().walk(*plain)
        for inputs, targets, rows in _chunks(work, now.once):
            program = self._program(inputs, targets, rows)
            if program is None:
                self.key(algorithm, work, "model")  # random numbers begin anew
                return super().walk(*plain)
            if not losses:
                self._load(buffers)
            elif now.once:
                now = self._step(algorithm, work, c, now.local, down, me, homes)
            given = (now.rule, now.vectors, now.constants, inputs, targets, rows, self.stop)
            losses.append(program.code.walk(*given))
        self._store(buffers)
        local = now.local | Struct(y=now.local.y.clone())
        return local, losses[0] if len(losses) == 1 else torch.cat(losses)

    def _step(
        self,
        algorithm: Algorithm,
        work: Work,
        c: Client,
        local: Struct,
        down: Struct,
        me: Struct,
        homes: dict[str, Tensor],
    ) -> Step:
        """The next local step; clients with the same numbers share its recipe."""
        decay = work.local.weight_decay
        numbers = [
            value
            for record in (local, down, me)
            for _, value in record.leaves()
            if not isinstance(value, Tensor)
        ]
        key = (algorithm, decay, c.t, c.n, c.steps, c.lr, c.lr0, c.n_mean, *numbers)
        if key not in self.recipes:
            if len(self.recipes) == RECIPES:
                self.recipes.clear()
            self.recipes[key] = recipe(algorithm, local, down, me, c, decay)
        return self.recipes[key].step(local, down, me, self.task.x, self.task.g, homes)

    def _load(self, buffers: dict[str, Tensor]) -> None:
        for name, buffer in self.buffers.items():
            buffer.copy_(buffers[name])

    def _store(self, buffers: dict[str, Tensor]) -> None:
        for name, buffer in self.buffers.items():
            buffers[name] = buffer.clone()

    def _program(self, inputs: Tensor, targets: Tensor, rows: Tensor) -> Program | None:
        """The program for batches like those in these rows; None if there can be none."""
        key = (rows.shape[1], inputs.shape[1:], inputs.dtype, targets.shape[1:], targets.dtype)
        if None in self.reasons or key in self.reasons:
            return None
        if key not in self.programs:
            try:
                with RECORDING:
                    program = self._record(inputs[rows[0]], targets[rows[0]])
                    torch.ops.undrift.trim()
            except Exception as reason:  # whatever it is, PyTorch itself may do better
                self.reasons[key] = str(reason)
                _say(f"{type(self.task.model).__name__} trains in Python: {reason}")
                return None
            if len(self.programs) == SHAPES:
                del self.programs[next(iter(self.programs))]
            self.programs[key] = program
            self.draws |= program.draws
        return self.programs[key]

    def _record(self, inputs: Tensor, targets: Tensor) -> Program:
        """A new program, found to agree with PyTorch on another batch than it was recorded with."""
        state, before = self.generator.get_state(), {k: v.clone() for k, v in self.buffers.items()}
        x = self.task.x.clone()
        try:
            program = record(self.task, self.buffers, inputs, targets, self.generator)
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
                    raise Unsuitable("the recorded step gives another result than PyTorch itself")
        finally:
            self.task.x.copy_(x)
            self.generator.set_state(state)
            self._load(before)
        return program


@cache
def _say(message: str) -> None:
    """Tell something once, however many workers find it out."""
    logging.getLogger("undrift").warning(message)


def _near(wanted: Tensor, got: Tensor) -> bool:
    """Whether two results differ by rounding only, on the scale of the largest value."""
    wanted, got = wanted.double(), got.double()
    room = 1e-3 * float(wanted.abs().max()) + 1e-6 if wanted.numel() else 0.0
    return torch.allclose(wanted, got, rtol=1e-3, atol=room, equal_nan=True)


def _chunks(work: Work, single: bool) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Inputs, targets and, for every step, the places of its batch in them."""
    data, rng = work.data, None
    if data.transform is None:
        inputs, targets, rows = data.inputs, data.targets, work.rows
    elif data.fixed and data.example.nbytes * len(work.rows) <= CHUNK_BYTES:
        inputs, targets = data.batch(work.rows)
        rows = np.arange(len(work.rows))
    else:
        rng = stream(work.seed, "augmentation", work.t, work.client)
    equal = isinstance(work.batches, np.ndarray)
    for same in [work.batches] if equal else (list(some) for _, some in groupby(work.batches, len)):
        batches = np.asarray(same)
        if rng is None:
            places = torch.from_numpy(rows[batches])
            yield from ((inputs, targets, one) for one in (places[:, None] if single else [places]))
            continue
        count = 1 if single else max(1, CHUNK_BYTES // (data.example.nbytes * len(batches[0])))
        for k in range(0, len(batches), count):
            made = [data.batch(work.rows[batch], rng) for batch in batches[k : k + count]]
            inputs, targets = (torch.cat(parts) for parts in zip(*made, strict=True))
            yield inputs, targets, torch.arange(len(targets)).view(len(made), -1)
