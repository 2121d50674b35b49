"""Passes over a trace: check that it can be run again, fold constants, remove dead calls."""

from __future__ import annotations

from dataclasses import replace

import torch

from undrift.engines.native.trace import Call, NotTraceable, Trace, storages

EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
FILLED = {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones"}

VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def refuse_untraceable(trace: Trace) -> Trace:
    """Raise `NotTraceable` if another batch might need other operators, or if a call has effects
    outside of the step."""
    made = [out for call in trace.calls if not call.written for out in call.results]
    ours = trace.varying | storages(made)
    for call in trace.calls:
        if call.name.startswith("index"):  # tagged data-dependent, which it is with masks only
            if any(t.dtype in (torch.bool, torch.uint8) for t in call.tensors[1:]):
                raise NotTraceable(f"{call.op} with a mask gives as many values as are true")
        elif VALUES.intersection(call.op.tags):
            raise NotTraceable(f"{call.op} looks at values")
        if not storages(call.written) <= ours:
            raise NotTraceable(f"{call.op} changes a tensor that is neither buffer nor parameter")
    return trace


def fold_constants(trace: Trace) -> Trace:
    """Remove views, and calls whose results are the same in every step.

    A call that depends on nothing that varies (parameters, batch, buffers, random numbers) has left
    its result in the tensors of the traced step. A tensor that is later written in place is not
    constant: every step must compute it again.
    """
    varying = trace.varying
    rewritten = {key for call in trace.calls for key in storages(call.written)}
    kept = []
    for call in trace.calls:
        if _is_view(call):
            continue
        outs = storages(call.results)
        # zeros_like(x) and the like read the shape of x, not its values.
        reads = call.name not in EMPTY | FILLED and varying & storages(call.tensors)
        if reads or call.draws or call.written or rewritten & outs:
            varying |= outs | storages(call.written)
            kept.append(call)
    return replace(trace, calls=kept)


def _is_view(call: Call) -> bool:
    return not call.written and storages(call.results) <= storages(call.tensors)


def eliminate_dead_calls(trace: Trace) -> Trace:
    """Remove calls on which no result depends, except those that draw random numbers: without them
    the later draws would differ."""
    live = trace.live_out | storages([buffer for buffer, _ in trace.buffers])
    kept = []
    for call in reversed(trace.calls):
        if call.draws or live & storages([*call.written, *call.results]):
            live |= storages(call.tensors)
            kept.append(call)
    return replace(trace, calls=kept[::-1])
