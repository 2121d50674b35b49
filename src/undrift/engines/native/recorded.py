"""A trainer whose local steps run as recorded programs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from itertools import groupby
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core import Algorithm, Struct
from undrift.engines.native.library import problem
from undrift.engines.native.program import Program, compile_gradient
from undrift.engines.native.route import CHUNK_BYTES, Part, Route
from undrift.engines.native.rule import Recipe, Step, recipe
from undrift.engines.native.trace import NotTraceable
from undrift.local import Start, Trainer, Work, named
from undrift.rng import Keyed, stream
from undrift.task import Task

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

    def walks(
        self,
        algorithm: Algorithm,
        starts: Sequence[Start],
        down: Struct,
        keyed: AbstractContextManager[object],
    ) -> list[tuple[Struct, list[float]]]:
        if None in self.reasons or algorithm in self.reasons:
            return super().walks(algorithm, starts, down, keyed)
        if len(starts) > 1:
            if not self.buffers:
                with suppress(Exception):  # one by one they say whose it is
                    return self._walks(algorithm, starts, down, keyed)
            return [self.walks(algorithm, [start], down, keyed)[0] for start in starts]
        with named(starts[0].work, "local steps"):
            return self._walks(algorithm, starts, down, keyed)

    def _walks(
        self,
        algorithm: Algorithm,
        starts: Sequence[Start],
        down: Struct,
        keyed: AbstractContextManager[object],
    ) -> list[tuple[Struct, list[float]]]:
        route = Route(self.stop)
        walked = []
        for start in starts:
            losses: list[float] = []
            try:
                local = self._plan(algorithm, start, down, route, losses)
            except NotTraceable as reason:
                self.reasons[algorithm] = str(reason)
                _say(f"{algorithm!r} trains in Python: {reason}")
                return super().walks(algorithm, starts, down, keyed)
            if local is None:
                self.key(algorithm, start.work, "model")  # random numbers begin anew
                local, losses = self.walk(algorithm, start, down, keyed)
            walked.append((local, losses))
        route.walk()
        return walked

    def _plan(
        self,
        algorithm: Algorithm,
        start: Start,
        down: Struct,
        route: Route,
        losses: list[float],
    ) -> Struct | None:
        """Put a client's steps at the end of a route: its variables once that has been walked.

        None if there are batches for which there can be no program.
        """
        work, before = start.work, len(route.parts)
        homes: dict[str, Tensor] = {}
        step = self._step(algorithm, start, start.local, down, homes)
        once = step.recipe.once
        self._load(start.buffers)
        for k, (inputs, targets, rows) in enumerate(_chunks(work, once)):
            program = self._program(inputs, targets, rows)
            if program is None:
                del route.parts[before:]
                return None
            if k and once:
                step = self._step(algorithm, start, step.local, down, homes)
            elif k:
                step = step.onwards
            part = Part(program, step, inputs, targets, rows, losses)
            route.add(part, made=inputs is not work.data.inputs)
        if self.buffers:
            route.walk()
            self._store(start.buffers)
        return step.local

    def _step(
        self,
        algorithm: Algorithm,
        start: Start,
        local: Struct,
        down: Struct,
        homes: dict[str, Tensor],
    ) -> Step:
        """The next local step; clients with the same numbers share its recipe."""
        c, decay = start.c, start.work.local.weight_decay
        records = [dict(record.leaves()) for record in (local, down, start.me)]
        numbers = (
            value
            for record in records
            for value in record.values()
            if not isinstance(value, Tensor)
        )
        key = (algorithm, decay, c.t, c.n, c.steps, c.lr, c.lr0, c.n_mean, *numbers)
        found = self.recipes.get(key)
        if found is None:
            if len(self.recipes) == RECIPES:
                self.recipes.clear()
            found = self.recipes[key] = recipe(algorithm, local, down, start.me, c, decay)
        return found.step(records, self.task.x, self.task.g, homes)

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
                    raise NotTraceable("the recorded step gives another result than PyTorch itself")
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
    """Whether two results differ by rounding only, on the scale of the largest value.

    Values that are not finite tell nothing: whether a step can be recorded must not depend on the
    batch that a worker happens to meet first.
    """
    known = wanted.isfinite()
    wanted, got = wanted[known].double(), got[known].double()
    room = 1e-3 * float(wanted.abs().max()) + 1e-6 if wanted.numel() else 0.0
    return torch.allclose(wanted, got, rtol=1e-3, atol=room)


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
