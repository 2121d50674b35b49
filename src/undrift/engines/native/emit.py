"""Emits the calls of a trace as a program in C++ (program.h)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undrift.engines.native.fold import EMPTY, FILLED
from undrift.engines.native.memory import Allocation, out_variant
from undrift.engines.native.trace import Call, NotTraceable, Trace

MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}


def emit(trace: Trace, allocation: Allocation, generator: torch.Generator) -> Any:
    """The C++ program of a trace whose memory is allocated."""
    buffers = [buffer for buffer, _ in trace.buffers]
    loss = allocation.window(trace.loss)
    program = torch.classes.undrift.Program(trace.x, trace.inputs, trace.targets, loss, buffers)
    if trace.addresses is not None:
        program.read_rows_in_place(trace.addresses)
    for i, call in enumerate(trace.calls):
        _emit_call(program, call, allocation, generator)
        for t in allocation.releases[i]:
            program.release(allocation.window(t))
    return program


def _emit_call(
    program: Any, call: Call, allocation: Allocation, generator: torch.Generator
) -> None:
    if call.name in EMPTY:
        return
    if call.name in FILLED:
        value = 0 if "zeros" in call.name else 1
        call = Call(torch.ops.aten.fill_.Scalar, [call.outs[0], value], [])
    outs = [] if call.written else call.outs
    variant = out_variant(call.op, len(outs)) if outs else None
    schema = (variant or call.op)._schema
    program.begin(schema.name, schema.overload_name, bool(outs) and variant is None)
    arguments = [a for a in schema.arguments if not a.is_out]
    for argument, value in zip(arguments, call.args, strict=True):
        given = generator if argument.name == "generator" else value
        method, *operand = _operand(str(argument.type), given, allocation)
        getattr(program, method)(*operand)
    for out in outs:
        if out is None:
            program.skip()
        else:
            (program.tensor if variant else program.out)(allocation.window(out))


def _operand(kind: str, value: Any, allocation: Allocation) -> tuple[Any, ...]:
    """How an argument of this type is emitted: the method of the program, and its arguments."""
    match value:
        case None:
            return ("none",)
        case Tensor():
            return "tensor", allocation.window(value)
        case list() | tuple():
            return _list(kind, list(value), allocation)
        case torch.Generator():
            return "generator", value
        case torch.dtype():
            return "dtype_of", torch.empty(0, dtype=value)
        case torch.device():
            return "device_of", torch.empty(0, device=value)
        case torch.layout():
            return "integer", 0
        case torch.memory_format():
            return "integer", MEMORY_FORMATS[value]
        case str():
            return "text", value
        case bool() | int() | float() if "Tensor" in kind:
            return "number", value
        case bool():
            return "flag", value
        case int() if "float" not in kind:
            return "integer", value
        case int() | float():
            return "real", float(value)
    raise NotTraceable(f"{value!r} cannot be an argument of a program")


def _list(kind: str, values: list[Any], allocation: Allocation) -> tuple[Any, ...]:
    if "Tensor" in kind:
        windows = [None if v is None else allocation.window(v) for v in values]
        return "maybe_tensors" if "Optional[Tensor]" in kind else "tensors", windows
    if "float" in kind or "number" in kind:
        return "floats", [float(v) for v in values]
    return "bools" if "bool" in kind else "ints", values
