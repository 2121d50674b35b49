"""A linear layer with few outputs reads the rows of a batch where they lie (rows.cpp)."""

from __future__ import annotations

import torch
from torch import Tensor

from undrift.engines.native.calls import Call, memory

aten = torch.ops.aten

FEW = 8
"""outputs of a layer that is bound by moving the batch; with more, sgemm is faster"""


def in_place(calls: list[Call], inputs: Tensor) -> tuple[list[Call], Tensor | None]:
    """The calls as they are on rows in place, and the tensor that has the rows' addresses.

    None, and the calls as they were, if the batch is used for anything but such a layer.
    """
    where = torch.empty(len(inputs), dtype=torch.int64)
    changed = []
    for call in calls:
        reads = any(memory(t) == memory(inputs) for t in call.tensors)
        new = _on_rows(call, inputs, where) if reads else call
        if new is None:
            return calls, None
        changed.append(new)
    return changed, where


def _on_rows(call: Call, inputs: Tensor, where: Tensor) -> Call | None:
    """Inputs times weights, with or without biases, or a gradient times inputs."""
    op, ops = call.op, torch.ops.undrift
    if op == aten.addmm.default and call.args[3:] == [1, 1] and call.args[0].ndim == 1:
        bias, batch, weight = call.args[:3]
    elif op == aten.mm.default and memory(call.args[0]) == memory(inputs):
        bias, batch, weight = None, *call.args
    elif op == aten.mm.default:
        gradient, batch = call.args
        if _whole(batch, inputs) and len(gradient) <= FEW and memory(gradient) != memory(inputs):
            args = [gradient, where, batch.shape[1]]
            return Call(ops.outer_at.default, args, call.outs)
        return None
    else:
        return None
    plain = weight.t().is_contiguous() and memory(weight) != memory(inputs)
    if _whole(batch, inputs) and plain and weight.shape[1] <= FEW:
        return Call(ops.linear_at.default, [where, weight.t(), bias], call.outs)
    return None


def _whole(batch: Tensor, inputs: Tensor) -> bool:
    """Whether a tensor is the batch itself, a row of numbers for each sample."""
    return (
        memory(batch) == memory(inputs)
        and batch.shape == (len(inputs), inputs[0].numel())
        and batch.is_contiguous()
        and inputs.is_contiguous()
        and batch.dtype == inputs.dtype
    )
