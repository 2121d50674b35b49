"""A pass for linear layers with few outputs: read the batch's rows in place (rows.cpp)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from undrift.engines.native.trace import Call, Trace, storage

aten = torch.ops.aten

FEW = 8
"""Most outputs of such a layer: up to here memory bandwidth is the limit; with more, sgemm wins."""


def read_rows_in_place(trace: Trace) -> Trace:
    """Let such a layer read the samples by address, so that no batch is gathered.

    The trace is unchanged if anything else uses the batch.
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
    """The call on rows by address: inputs times weights (plus biases), or gradient times inputs;
    None if it is neither."""
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
    """Whether a tensor is the whole batch as a matrix, one row per sample."""
    return (
        storage(batch) == storage(inputs)
        and batch.shape == (len(inputs), inputs[0].numel())
        and batch.is_contiguous()
        and inputs.is_contiguous()
        and batch.dtype == inputs.dtype
    )
