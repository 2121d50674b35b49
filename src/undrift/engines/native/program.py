"""Compiles the gradient of a batch: one step is traced in PyTorch, then run in C++."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Tensor

from undrift.engines.native.emit import emit
from undrift.engines.native.fold import eliminate_dead_calls, fold_constants, refuse_untraceable
from undrift.engines.native.memory import allocate, store_results
from undrift.engines.native.rows import read_rows_in_place
from undrift.engines.native.trace import trace_gradient
from undrift.training.task import Task

PASSES = (
    refuse_untraceable,
    fold_constants,
    eliminate_dead_calls,
    read_rows_in_place,
    store_results,
)


@dataclass(frozen=True)
class Program:
    """Computes loss and gradient of the batch in `inputs` and `targets`.

    code   the program in C++
    draws  whether the model draws random numbers, as with dropout
    """

    code: Any
    inputs: Tensor
    targets: Tensor
    loss: Tensor
    draws: bool

    @cached_property
    def handle(self) -> int:
        """The address of the code in C++, for a launch."""
        return int(self.code.handle())


def compile_gradient(
    task: Task,
    buffers: dict[str, Tensor],
    inputs: Tensor,
    targets: Tensor,
    generator: torch.Generator,
) -> Program:
    """The program that computes loss and gradient of a batch of this shape.

    It reads the task's parameter vector `x`, `inputs`, `targets` and `buffers`, and writes the
    task's gradient vector `g` and the new values of the buffers.
    """
    trace = trace_gradient(task, buffers, inputs, targets, generator)
    trace = reduce(lambda made, transform: transform(made), PASSES, trace)
    allocation = allocate(trace)
    return Program(
        code=emit(trace, allocation, generator),
        inputs=inputs,
        targets=targets,
        loss=allocation.window(trace.loss),
        draws=any(call.draws for call in trace.calls),
    )
