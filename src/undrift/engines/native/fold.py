"""Passes over a trace that leave out what need not run again, after a check that it can."""

from __future__ import annotations

from dataclasses import replace

import torch

from undrift.engines.native.trace import Call, NotTraceable, Trace, storages

EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
FILLED = {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones"}

VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def refuse_untraceable(trace: Trace) -> Trace:
    """Raise `NotTraceable` if other batches may need other operators, or have other effects."""
    made = [out for call in trace.calls if not call.written for out in call.results]
    ours = trace.varying | storages(made)
    for call in trace.calls:
        if call.name.startswith("index"):  # tagged as if it depended on values, for its masks
            if any(t.dtype in (torch.bool, torch.uint8) for t in call.tensors[1:]):
                raise NotTraceable(f"{call.op} with a mask gives as many values as are true")
        elif VALUES.intersection(call.op.tags):
            raise NotTraceable(f"{call.op} looks at values")
        if not storages(call.written) <= ours:
            raise NotTraceable(f"{call.op} changes a tensor that is neither buffer nor parameter")
    return trace


def fold_constants(trace: Trace) -> Trace:
    """Leave out views, and calls whose results are the same in every step.

    What depends on nothing that varies (parameters, batch, buffers, random numbers) has its value
    already, in the tensors of the traced step. A tensor that is written in place must be made anew.
    """
    varying = trace.varying
    rewritten = {key for call in trace.calls for key in storages(call.written)}
    kept = []
    for call in trace.calls:
        if _is_view(call):
            continue
        outs = storages(call.results)
        # zeros_like(x) and its kin read the shape of x, not its values.
        reads = call.name not in EMPTY | FILLED and varying & storages(call.tensors)
        if reads or call.draws or call.written or rewritten & outs:
            varying |= outs | storages(call.written)
            kept.append(call)
    return replace(trace, calls=kept)


def _is_view(call: Call) -> bool:
    return not call.written and storages(call.results) <= storages(call.tensors)


def eliminate_dead_calls(trace: Trace) -> Trace:
    """Leave out calls on which no result depends. Those that draw random numbers stay."""
    live = trace.live_out | storages([buffer for buffer, _ in trace.buffers])
    kept = []
    for call in reversed(trace.calls):
        if call.draws or live & storages([*call.written, *call.results]):
            live |= storages(call.tensors)
            kept.append(call)
    return replace(trace, calls=kept[::-1])
