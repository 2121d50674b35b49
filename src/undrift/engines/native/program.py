"""The gradient of a batch as a program: one step is traced in PyTorch, and run again in C++."""

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
    """Loss and gradient of the batch in `inputs` and `targets` at the task's parameters.

    code   the program in C++
    draws  whether the model draws random numbers
    """

    code: Any
    inputs: Tensor
    targets: Tensor
    loss: Tensor
    draws: bool

    @cached_property
    def handle(self) -> int:
        """The code as a number."""
        return int(self.code.handle())


def compile_gradient(
    task: Task,
    buffers: dict[str, Tensor],
    inputs: Tensor,
    targets: Tensor,
    generator: torch.Generator,
) -> Program:
    """The program that computes loss and gradient of a batch like this one.

    It reads the task's vector of parameters, `inputs`, `targets` and `buffers` (which it changes as
    training does), and writes the task's gradient vector.
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
