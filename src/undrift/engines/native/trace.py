"""Traces the operators of one training step in PyTorch, forward and backward.

Every operator that reaches torch's kernels is recorded with its arguments. A tensor is treated as a
view of a storage: calls depend on each other by the storages that they read and write, and views
themselves need no call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor

from undrift.engines.native.recurrent import FastRecurrent
from undrift.keyed import Keyed, draws
from undrift.training.task import Task


class NotTraceable(Exception):
    """A step cannot be traced, for the reason in the message; it then runs in Python."""


@dataclass(frozen=True)
class Call:
    """A call of an operator, with its arguments and results."""

    op: Any
    args: list[Any]
    outs: list[Tensor | None]

    @property
    def name(self) -> str:
        return str(self.op.overloadpacket.__name__)

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return draws(self.op)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among its arguments."""
        return [t for arg in self.args for t in tensors(arg)]

    @property
    def results(self) -> list[Tensor]:
        return [out for out in self.outs if out is not None]

    @property
    def written(self) -> list[Tensor]:
        """The arguments that it changes in place."""
        return [
            t
            for arg, given in zip(self.op._schema.arguments, self.args, strict=True)
            if arg.alias_info is not None and arg.alias_info.is_write
            for t in tensors(given)
        ]


@dataclass(frozen=True)
class Trace:
    """One step on one batch. Passes (fold.py, rows.py, memory.py) return new traces.

    calls      in order
    x          parameter vector
    loss       mean loss of the batch
    gradients  pairs: a parameter's gradient from backward, and its slice of the gradient vector
    buffers    pairs: a buffer, and the tensor with its value after the step
    homes      storage → slice of the gradient vector that calls write instead of it
    addresses  of the batch's rows, if calls read them in place
    """

    calls: list[Call]
    x: Tensor
    inputs: Tensor
    targets: Tensor
    loss: Tensor
    gradients: list[tuple[Tensor, Tensor]]
    buffers: list[tuple[Tensor, Tensor]]
    homes: dict[int, Tensor] = field(default_factory=dict)
    addresses: Tensor | None = None

    def __str__(self) -> str:
        """The calls, with storages for tensors: x (parameters), g (gradients), s0, s1, ..."""
        names = dict.fromkeys([*self.homes, *(storage(home) for _, home in self.gradients)], "g")
        names |= {storage(self.x): "x", storage(self.inputs): "inputs"}
        names |= {storage(self.targets): "targets", storage(self.loss): "loss"}
        numbers = count()

        def spell(some: list[Tensor]) -> str:
            keys = map(storage, some)
            return ", ".join(names.get(k) or names.setdefault(k, f"s{next(numbers)}") for k in keys)

        lines = []
        for call in self.calls:
            line = f"{call.name}({spell(call.tensors)})"
            lines.append(line if call.written else f"{spell(call.results)} = {line}")
        return "\n".join(lines)

    @property
    def varying(self) -> set[int]:
        """The storages that change between steps: parameters, batch and buffers."""
        buffers = [before for before, _ in self.buffers]
        return storages([self.x, self.inputs, self.targets, *buffers])

    @property
    def live_out(self) -> set[int]:
        """The storages that are read after a step."""
        buffers = [after for _, after in self.buffers]
        return storages([self.loss, *buffers, *(gradient for gradient, _ in self.gradients)])


def trace_gradient(
    task: Task,
    buffers: dict[str, Tensor],
    inputs: Tensor,
    targets: Tensor,
    generator: torch.Generator,
) -> Trace:
    """Run one step at the task's current parameters and record its operators."""
    tracer = Tracer(generator)
    try:
        task.put(buffers)
        for p in task.trained:
            p.grad = None
        with FastRecurrent(), tracer:
            loss = task.loss(task.model.train()(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
        found = zip([p.grad for p in task.trained], task.split(task.g), strict=True)
    finally:
        after = task.taken(buffers)
        task.gather_gradients()
    return Trace(
        calls=tracer.calls,
        x=task.x,
        inputs=inputs,
        targets=targets,
        loss=loss,
        gradients=[(gradient, home) for gradient, home in found if gradient is not None],
        buffers=[(buffer, after[name]) for name, buffer in buffers.items()],
    )


class Tracer(Keyed):  # type: ignore[no-untyped-call]
    """Records every operator."""

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
            raise NotTraceable(f"{op} looks at values")
        # Aliases, not the tensors: autograd copies a gradient to which others hold a reference.
        self.calls.append(Call(op, [_alias(one) for one in given], [_alias(out) for out in outs]))
        return result


def _alias(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_alias(one) for one in value]
    return value.detach() if isinstance(value, Tensor) else value


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in an argument."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors(one)


def storage(t: Tensor) -> int:
    """The id of a tensor's storage."""
    try:
        return int(t.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        raise NotTraceable(f"a {t.layout} tensor has no plain memory") from None


def storages(some: list[Tensor]) -> set[int]:
    return {storage(t) for t in some}
