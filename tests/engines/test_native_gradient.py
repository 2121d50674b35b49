"""Passes over the trace of a gradient: fewer calls, other memory, the same numbers."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.engines.kinds import federation
from undrift.engines.native.fold import eliminate_dead_calls, fold_constants
from undrift.engines.native.library import load
from undrift.engines.native.memory import (
    Allocation,
    allocate,
    lifetimes,
    out_variant,
    store_results,
)
from undrift.engines.native.program import PASSES
from undrift.engines.native.rows import read_rows_in_place
from undrift.engines.native.trace import Trace, trace_gradient
from undrift.training.task import Task


def trace(task: Task, inputs: Tensor, targets: Tensor) -> Trace:
    load()
    buffers = task.unpack(task.buffers0)
    return trace_gradient(task, buffers, inputs, targets, torch.Generator())


def trace_model(model: nn.Module) -> Trace:
    torch.manual_seed(0)
    return trace(Task(model.double()), torch.randn(4, 6).double(), torch.arange(4))


def names(trace: Trace) -> list[str]:
    return [call.name for call in trace.calls]


def run(trace: Trace, allocation: Allocation) -> None:
    """Run the calls in Python, on the memory that was allocated for them."""
    if trace.addresses is not None:
        rows = torch.arange(len(trace.inputs))
        trace.addresses.copy_(trace.inputs.data_ptr() + rows * trace.inputs[0].nbytes)
    for call in trace.calls:
        arguments = call.op._schema.arguments
        given: dict[bool, dict[str, Any]] = {False: {}, True: {}}
        for argument, value in zip(arguments, call.args, strict=True):
            given[argument.kwarg_only][argument.name] = moved(value, allocation)
        outs = [None if out is None else allocation.window(out) for out in call.outs]
        if call.op.namespace == "undrift":
            out_variant(call.op, 1)(*given[False].values(), out=outs[0])
            continue
        made = call.op(*given[False].values(), **given[True])
        for out, new in zip(outs, made if isinstance(made, tuple) else [made], strict=False):
            if out is not None:
                out.copy_(new)


def moved(value: Any, allocation: Allocation) -> Any:
    if isinstance(value, list | tuple):
        return [moved(one, allocation) for one in value]
    return allocation.window(value) if isinstance(value, Tensor) else value


@pytest.mark.parametrize("count", range(len(PASSES) + 2))
@pytest.mark.parametrize(
    "name", ["linear", "linear, many outputs", "batch norm", "in place", "tied"]
)
def test_passes_keep_the_numbers(name: str, count: int) -> None:
    """On another batch than the traced one; the last time in memory that is shared."""
    task, data = federation(name)
    task = task.replica()
    inputs, targets = data.inputs[:4].clone(), data.targets[:4].clone()
    made = trace(task, inputs, targets)
    for transform in PASSES[:count]:
        made = transform(made)
    allocation = allocate(made) if count > len(PASSES) else Allocation()
    inputs.copy_(data.inputs[4:8])
    targets.copy_(data.targets[4:8])
    buffers = task.unpack(task.buffers0)
    for (buffer, _), before in zip(made.buffers, buffers.values(), strict=True):
        buffer.copy_(before)
    run(made, allocation)
    results = [made.loss, *(g for g, _ in made.gradients), *(after for _, after in made.buffers)]
    found = [allocation.window(t).clone() for t in results]
    at_home = task.g.clone()
    loss, g = task.gradient(task.x0, buffers, inputs, targets)
    torch.testing.assert_close(found, [loss, *task.split(g), *buffers.values()])
    if count > len(PASSES):
        torch.testing.assert_close(at_home, g)


class Scaled(nn.Linear):
    """By numbers that it computes anew every time; and it computes something for nothing."""

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.arange(6, dtype=x.dtype).exp()
        torch.bernoulli(super().forward(x).sigmoid()).tanh()
        return super().forward(x * scale)


def test_what_depends_on_nothing_that_varies_is_not_computed_again() -> None:
    traced = trace_model(Scaled(6, 4))
    folded = fold_constants(traced)
    assert {"arange", "exp", "t"} <= set(names(traced))
    assert not {"arange", "exp", "t"} & set(names(folded))
    assert "mul" in names(folded)


def test_what_no_result_needs_is_not_computed_but_random_numbers_are_drawn() -> None:
    traced = trace_model(Scaled(6, 4))
    kept = eliminate_dead_calls(traced)
    assert {"sigmoid", "bernoulli", "tanh"} <= set(names(traced))
    assert {"sigmoid", "bernoulli"} <= set(names(kept))
    assert "tanh" not in names(kept)


@pytest.mark.parametrize(("outputs", "in_place"), [(8, True), (9, False)])
def test_layers_with_few_outputs_read_rows_in_place(outputs: int, in_place: bool) -> None:
    folded = eliminate_dead_calls(fold_constants(trace_model(nn.Linear(6, outputs))))
    made = read_rows_in_place(folded)
    assert ({"linear_at", "outer_at"} <= set(names(made))) == in_place
    assert (made.addresses is not None) == in_place


def test_gradients_are_computed_at_home_or_copied() -> None:
    """A gradient that is a part of something larger has to be copied."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
            self.linear = nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.linear(x * torch.cat([self.a, self.b]))
            return y

    made = store_results(eliminate_dead_calls(fold_constants(trace_model(Halves()))))
    parameters = [home.numel() for _, home in made.gradients]
    copied = [call.args[0].numel() for call in made.calls if call.name == "copy_"]
    assert parameters == [3, 3, 24, 4]
    assert copied == [3, 3]
    assert sorted(home.numel() for home in made.homes.values()) == [4, 24]


def test_memory_is_shared_by_what_never_lives_together() -> None:
    """A chain of ten functions takes the memory of few, and no two that live at once overlap."""
    chain = [nn.Tanh() for _ in range(10)]
    made = trace_model(nn.Sequential(nn.Linear(6, 4), *chain))
    for transform in PASSES:
        made = transform(made)
    lives = [life for key, life in lifetimes(made).items() if life.made and key not in made.homes]
    allocation = allocate(made)
    spans = [span(allocation.window(life.tensor)) for life in lives]
    assert len(set(spans)) < len(spans)
    for (a, one), (b, other) in combinations(zip(lives, spans, strict=True), 2):
        if a.first <= b.last and b.first <= a.last:
            assert one[1] <= other[0] or other[1] <= one[0]


def span(t: Tensor) -> tuple[int, int]:
    begin = t.untyped_storage().data_ptr()
    return begin, begin + t.untyped_storage().nbytes()
