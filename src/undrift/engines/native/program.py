"""A gradient as a program: the operators of one eager step, recorded once and run many times.

While a step runs, every operator that reaches torch's kernels is noted with its arguments. A tensor
is a window on a storage, so views cost nothing later; storages that the step made are laid out anew
in memory that the program owns and shares among those that are never alive together. Operators are
then run in the same order on the same memory, without Python, autograd or allocation.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from undrift.engines.native.calls import Call, Unsuitable, memory
from undrift.engines.native.recurrent import FastRecurrent
from undrift.engines.native.rows import in_place
from undrift.rng import Keyed, draws
from undrift.task import Task

aten = torch.ops.aten

EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
FILLED = {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones"}
VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}


class Recorder(Keyed):  # type: ignore[no-untyped-call]
    """Notes every operator."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__(generator)
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = super().__torch_dispatch__(op, types, args, kwargs)
        given = [
            args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
            for i, a in enumerate(op._schema.arguments)
        ]
        outs = list(result) if isinstance(result, tuple | list) else [result]
        if not all(out is None or isinstance(out, Tensor) for out in outs):
            raise Unsuitable(f"{op} looks at values")
        # Other tensors on the same memory: autograd copies a gradient that somebody else holds.
        self.calls.append(Call(op, [_alias(one) for one in given], [_alias(out) for out in outs]))
        return result


@dataclass
class Place:
    """Where the memory of a storage lies."""

    storage: torch.UntypedStorage
    offset: int = 0


@dataclass
class Layout:
    """From the storages of the recorded step to those of the program."""

    places: dict[int, Place] = field(default_factory=dict)
    ends: dict[int, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    """by call: tensors whose memory the allocator gave and may have back after it"""

    def window(self, t: Tensor) -> Tensor:
        """The same view in the program's memory; what was not moved stays."""
        place = self.places.get(memory(t))
        if place is None:
            return t.detach()
        offset = place.offset // t.element_size() + t.storage_offset()
        return torch.empty(0, dtype=t.dtype).set_(place.storage, offset, t.shape, t.stride())


@dataclass(frozen=True)
class Program:
    """Loss and gradient of the batch in `inputs` and `targets` at the task's parameters."""

    code: Any
    handle: int
    """the code as a number"""
    inputs: Tensor
    targets: Tensor
    loss: Tensor
    draws: bool
    """whether the model draws random numbers"""


def record(
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
    recorder = Recorder(generator)
    try:
        task.put(buffers)
        for p in task.trained:
            p.grad = None
        with FastRecurrent(), recorder:
            loss = task.loss(task.model.train()(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in task.trained]
    finally:
        after = task.taken(buffers)
        task.gather_gradients()
    found = [loss, *buffers.values(), *after.values(), *(g for g in gradients if g is not None)]
    calls = _needed(_moving(recorder.calls, [inputs, targets, task.x, *buffers.values()]), found)
    calls, where = in_place(calls, inputs)
    layout = _lay_out(calls, [loss, *after.values()], task, gradients)
    result = layout.window(loss)
    program = torch.classes.undrift.Program(task.x, inputs, targets, result, list(buffers.values()))
    if where is not None:
        program.in_place(where)
    for i, call in enumerate(calls):
        _emit(program, call, layout, generator)
        for t in layout.ends[i]:
            program.done(layout.window(t))
    for gradient, home in zip(gradients, task.split(task.g), strict=True):
        if gradient is not None and layout.window(gradient).data_ptr() != home.data_ptr():
            _emit(program, Call(aten.copy_.default, [home, gradient, False], []), layout, generator)
    for name, buffer in buffers.items():
        if after[name] is not buffer:
            _emit(
                program,
                Call(aten.copy_.default, [buffer, after[name], False], []),
                layout,
                generator,
            )
    drawing = any(draws(call.op) for call in calls)
    return Program(program, program.handle(), inputs, targets, result, drawing)


def _alias(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_alias(one) for one in value]
    return value.detach() if isinstance(value, Tensor) else value


def _moving(calls: list[Call], moving: list[Tensor]) -> list[Call]:
    """The calls whose results change from step to step.

    A view needs no repetition. What depends on nothing that moves (parameters, batch, buffers,
    random numbers) was computed for good.
    """
    live = {memory(t) for t in moving}
    made = {memory(o) for c in calls if not c.written for o in c.outs if o is not None}
    written = {memory(t) for c in calls for t in c.written}
    needed: list[Call] = []
    for call in calls:
        masked = any(t.dtype in (torch.bool, torch.uint8) for t in call.tensors[1:])
        if call.name.startswith("index"):
            if masked:
                raise Unsuitable(f"{call.op} with a mask gives as many values as are true")
        elif VALUES.intersection(call.op.tags):
            raise Unsuitable(f"{call.op} looks at values")
        for t in call.written:
            if memory(t) not in live | made:
                raise Unsuitable(f"{call.op} changes a tensor that is neither buffer nor parameter")
        given = {memory(t) for t in call.tensors}
        outs = [memory(out) for out in call.outs if out is not None]
        if not call.written and given.issuperset(outs):
            continue  # a view
        depends = call.name not in EMPTY | FILLED and (given & live or draws(call.op))
        if depends or call.written or written.intersection(outs):
            live.update(outs)
            live.update(memory(t) for t in call.written)
            needed.append(call)
    return needed


def _needed(calls: list[Call], results: list[Tensor]) -> list[Call]:
    """The calls on which the results depend, and those that draw random numbers."""
    wanted = {memory(t) for t in results}
    needed: list[Call] = []
    for call in reversed(calls):
        changed = {
            memory(t) for t in [*call.written, *(out for out in call.outs if out is not None)]
        }
        if wanted & changed or draws(call.op):
            wanted |= {memory(t) for t in call.tensors}
            needed.append(call)
    return needed[::-1]


def _lay_out(
    calls: list[Call],
    results: list[Tensor],
    task: Task,
    gradients: list[Tensor | None],
) -> Layout:
    """Memory for every storage that the step makes: gradients at home, others shared over time."""
    layout = Layout()
    sizes: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    windows: dict[int, Tensor] = {}
    fresh: set[int] = set()
    made: set[int] = set()
    for i, call in enumerate(calls):
        outs = [out for out in call.outs if out is not None]
        written = {memory(t) for t in call.written}
        for out in outs:
            key = memory(out)
            if key in written:
                continue
            made.add(key)
            if call.name not in EMPTY | FILLED and _out_variant(call) is None:
                fresh.add(key)
        for t in [*outs, *call.tensors]:
            key = memory(t)
            sizes[key] = t.untyped_storage().nbytes()
            first.setdefault(key, i)
            last[key] = i
            windows[key] = t
    for t in results:
        last[memory(t)] = len(calls)
    base = task.g.untyped_storage()
    offset = 0
    for gradient, home in zip(gradients, task.split(task.g), strict=True):
        if gradient is not None:
            key = memory(gradient)
            whole = sizes.get(key) == home.nbytes and gradient.is_contiguous()
            if key in made - fresh and whole and key not in layout.places:
                layout.places[key] = Place(base, offset)
            last[key] = len(calls)
        offset += home.nbytes
    free: dict[int, list[torch.UntypedStorage]] = defaultdict(list)
    ends: dict[int, list[int]] = defaultdict(list)
    planned = [k for k in sorted(made, key=lambda k: first[k]) if k not in layout.places]
    clock = 0
    for key in planned:
        while clock < first[key]:
            for ended in ends.pop(clock, []):
                free[sizes[ended]].append(layout.places[ended].storage)
            clock += 1
        if key in fresh or not free[sizes[key]]:
            storage = torch.UntypedStorage(sizes[key])  # type: ignore[no-untyped-call]
        else:
            storage = free[sizes[key]].pop()
        layout.places[key] = Place(storage)
        if key in fresh:
            layout.ends[last[key]].append(windows[key])
        else:
            ends[last[key]].append(key)
    return layout


def _out_variant(call: Call) -> Any:
    """The overload that writes into given tensors, if the kernel itself can."""
    arguments = [(a.name, str(a.type)) for a in call.op._schema.arguments]
    packet = call.op.overloadpacket
    for name in packet.overloads():
        schema = getattr(packet, name)._schema
        plain = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
        outs = [a for a in schema.arguments if a.is_out]
        fits = outs and plain == arguments and len(outs) == len(call.outs)
        if fits and torch._C._dispatch_has_kernel_for_dispatch_key(f"{schema.name}.{name}", "CPU"):
            return getattr(packet, name)
    return None


def _emit(program: Any, call: Call, layout: Layout, generator: torch.Generator) -> None:
    """Add a call to the program."""
    if call.name in EMPTY:
        return
    if call.name in FILLED:
        value = 0 if "zeros" in call.name else 1
        call = Call(aten.fill_.Scalar, [call.outs[0], value], [])
    written = {memory(t) for t in call.written}
    outs = [] if written else call.outs
    variant = _out_variant(call) if outs else None
    op = variant or call.op
    schema = op._schema
    program.begin(schema.name, schema.overload_name, bool(outs) and variant is None)
    arguments = [a for a in schema.arguments if not a.is_out]
    for argument, value in zip(arguments, call.args, strict=True):
        _push(program, argument, value, layout, generator)
    for out in outs:
        if out is None:
            program.skip()
        else:
            (program.tensor if variant else program.out)(layout.window(out))


def _push(
    program: Any, argument: Any, value: Any, layout: Layout, generator: torch.Generator
) -> None:
    """Add an argument, in the type that the operator's schema asks for."""
    kind = str(argument.type)
    if argument.name == "generator":
        program.generator(generator)
    elif value is None:
        program.none()
    elif isinstance(value, Tensor):
        program.tensor(layout.window(value))
    elif isinstance(value, list | tuple):
        _push_list(program, kind, list(value), layout)
    elif isinstance(value, torch.dtype):
        program.dtype_of(torch.empty(0, dtype=value))
    elif isinstance(value, torch.device):
        program.device_of(torch.empty(0, device=value))
    elif isinstance(value, torch.layout):
        program.integer(0)
    elif isinstance(value, torch.memory_format):
        program.integer(MEMORY_FORMATS[value])
    elif isinstance(value, str):
        program.text(value)
    elif "Tensor" in kind:
        program.number(value)
    elif isinstance(value, bool):
        program.flag(value)
    elif isinstance(value, float) or "float" in kind:
        program.real(float(value))
    elif isinstance(value, int):
        program.integer(value)
    else:
        raise Unsuitable(f"{value!r} cannot be an argument of a program")


def _push_list(program: Any, kind: str, values: list[Any], layout: Layout) -> None:
    if "Tensor" in kind:
        windows = [None if v is None else layout.window(v) for v in values]
        (program.maybe_tensors if "Optional[Tensor]" in kind else program.tensors)(windows)
    elif "float" in kind or "number" in kind:
        program.floats([float(v) for v in values])
    elif "bool" in kind:
        program.bools(values)
    else:
        program.ints(values)
