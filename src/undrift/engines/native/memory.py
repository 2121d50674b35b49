"""Allocates memory for the results of a program's calls, by lifetimes, once for all steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from undrift.engines.native.fold import EMPTY, FILLED
from undrift.engines.native.trace import Call, Trace, storage, storages

COPY = torch.ops.aten.copy_.default
RESIZED = {
    f"aten::{loss}" for loss in ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
}
"""losses whose `out` overload first needs room for every sample, where the result is one number"""


@dataclass
class Lifetime:
    """The lifetime of a storage: numbers of the first and the last call that use it.

    made   whether a call of the trace creates it
    fresh  whether that call allocates its result itself, as it has no `out` overload
    """

    tensor: Tensor
    first: int
    last: int
    made: bool = False
    fresh: bool = False

    @property
    def nbytes(self) -> int:
        return self.tensor.untyped_storage().nbytes()


def lifetimes(trace: Trace) -> dict[int, Lifetime]:
    """The lifetimes of all storages that calls read or write; results live to the end."""
    found: dict[int, Lifetime] = {}
    for i, call in enumerate(trace.calls):
        for t in [*call.results, *call.tensors]:
            found.setdefault(storage(t), Lifetime(t, i, i)).last = i
        for key in storages(call.results) - storages(call.written):
            found[key].made = True
            found[key].fresh |= _brings_memory(call)
    for key in trace.live_out & found.keys():
        found[key].last = len(trace.calls)
    return found


def _brings_memory(call: Call) -> bool:
    return call.name not in EMPTY | FILLED and out_variant(call.op, len(call.outs)) is None


@cache
def out_variant(op: Any, count: int) -> Any:
    """The overload that writes into given tensors, if it has a CPU kernel of its own: a generic one
    would allocate and copy; those of `RESIZED` write beyond them."""
    if op._schema.name in RESIZED:
        return None
    arguments = [(a.name, str(a.type)) for a in op._schema.arguments]
    packet = op.overloadpacket
    for name in packet.overloads():
        schema = getattr(packet, name)._schema
        plain = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
        outs = [a for a in schema.arguments if a.is_out]
        fits = outs and plain == arguments and len(outs) == count
        if fits and torch._C._dispatch_has_kernel_for_dispatch_key(f"{schema.name}.{name}", "CPU"):
            return getattr(packet, name)
    return None


def store_results(trace: Trace) -> Trace:
    """Let calls write gradients directly into the gradient vector, or add copies; add copies of
    new buffer values into the buffers."""
    lives = lifetimes(trace)
    homes: dict[int, Tensor] = {}
    copies = []
    for gradient, home in trace.gradients:
        key = storage(gradient)
        life = lives.get(key)
        if (
            life is not None
            and life.made
            and not life.fresh
            and life.nbytes == home.nbytes
            and gradient.is_contiguous()
            and key not in homes
        ):
            homes[key] = home
        else:
            copies.append(Call(COPY, [home, gradient, False], []))
    for buffer, after in trace.buffers:
        if after is not buffer:
            copies.append(Call(COPY, [buffer, after, False], []))
    return replace(trace, calls=trace.calls + copies, homes=homes)


@dataclass
class Allocation:
    """Maps the storages of the traced step to those of the program.

    moved     old storage → new one, and the offset in it in bytes
    releases  call → `fresh` tensors whose memory can be freed after it
    """

    moved: dict[int, tuple[torch.UntypedStorage, int]] = field(default_factory=dict)
    releases: dict[int, list[Tensor]] = field(default_factory=lambda: defaultdict(list))

    def window(self, t: Tensor) -> Tensor:
        """The tensor as a view of the program's memory; unchanged if it was not moved."""
        if storage(t) not in self.moved:
            return t.detach()
        memory, begin = self.moved[storage(t)]
        offset = begin // t.element_size() + t.storage_offset()
        return torch.empty(0, dtype=t.dtype).set_(memory, offset, t.shape, t.stride())


def allocate(trace: Trace) -> Allocation:
    """Allocate a storage for each one that calls create; disjoint lifetimes may share one.

    A linear scan over the calls, with a free list for each size. Storages that a call allocates
    itself (`fresh`) are not shared: they return to torch's allocator after their last use.
    """
    lives = lifetimes(trace)
    made = Allocation()
    for key, home in trace.homes.items():
        begin = int(home.storage_offset()) * home.element_size()
        made.moved[key] = home.untyped_storage(), begin
    free: dict[int, list[torch.UntypedStorage]] = defaultdict(list)
    ending: dict[int, list[torch.UntypedStorage]] = defaultdict(list)
    now = 0
    for key, life in sorted(lives.items(), key=lambda item: item[1].first):
        if not life.made or key in trace.homes:
            continue
        for ended in range(now, life.first):  # exclusive: the last call still reads its arguments
            for one in ending.pop(ended, []):
                free[one.nbytes()].append(one)
        now = life.first
        if free[life.nbytes] and not life.fresh:
            memory = free[life.nbytes].pop()
        else:
            memory = torch.UntypedStorage(life.nbytes)  # type: ignore[no-untyped-call]
        made.moved[key] = memory, 0
        if life.fresh:
            made.releases[life.last].append(life.tensor)
        else:
            ending[life.last].append(memory)
    return made
