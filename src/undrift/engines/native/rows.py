"""A linear layer with few outputs reads the rows of a batch where they lie (rows.cpp)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from undrift.engines.native.trace import Call, Trace, storage

aten = torch.ops.aten

FEW = 8
"""outputs of a layer that is bound by moving the batch; with more, sgemm is faster"""


def read_rows_in_place(trace: Trace) -> Trace:
    """Let such a layer read rows by their addresses, so that no batch has to be gathered.

    Nothing changes if the batch is used for anything else.
    """
    inputs, calls = trace.inputs, []
    addresses = torch.empty(len(inputs), dtype=torch.int64)
    for call in trace.calls:
        reads = any(storage(t) == storage(inputs) for t in call.tensors)
        new = _on_rows(call, inputs, addresses) if reads else call
        if new is None:
            return trace
        calls.append(new)
    return replace(trace, calls=calls, addresses=addresses)


def _on_rows(call: Call, inputs: Tensor, addresses: Tensor) -> Call | None:
    """Inputs times weights, with or without biases, or a gradient times inputs."""
    op, ops = call.op, torch.ops.undrift
    if op == aten.addmm.default and call.args[3:] == [1, 1] and call.args[0].ndim == 1:
        bias, batch, weight = call.args[:3]
    elif op == aten.mm.default and storage(call.args[0]) == storage(inputs):
        bias, batch, weight = None, *call.args
    elif op == aten.mm.default:
        gradient, batch = call.args
        if _whole(batch, inputs) and len(gradient) <= FEW and storage(gradient) != storage(inputs):
            args = [gradient, addresses, batch.shape[1]]
            return Call(ops.outer_at.default, args, call.outs)
        return None
    else:
        return None
    plain = weight.t().is_contiguous() and storage(weight) != storage(inputs)
    if _whole(batch, inputs) and plain and weight.shape[1] <= FEW:
        return Call(ops.linear_at.default, [addresses, weight.t(), bias], call.outs)
    return None


def _whole(batch: Tensor, inputs: Tensor) -> bool:
    """Whether a tensor is the batch itself, a row of numbers for each sample."""
    return (
        storage(batch) == storage(inputs)
        and batch.shape == (len(inputs), inputs[0].numel())
        and batch.is_contiguous()
        and inputs.is_contiguous()
        and batch.dtype == inputs.dtype
    )
