"""Memory for what a step computes: buffers with lifetimes, allocated once for all steps."""

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


@dataclass
class Lifetime:
    """Of a storage, in calls.

    made   whether a call of the trace makes it
    fresh  whether that call brings memory of its own, as it cannot write into given memory
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
    """Of all storages that calls read or write; results live to the end."""
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
    """The overload that writes its results into given tensors, if the kernel itself can."""
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
    """Compute gradients where they are wanted, or copy them there; copy buffers back."""
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
    """From the storages of the traced step to those of the program.

    moved     by old storage: the new one, and the offset in it, in bytes
    releases  by call: tensors with memory that a call brought and that nobody reads after this one
    """

    moved: dict[int, tuple[torch.UntypedStorage, int]] = field(default_factory=dict)
    releases: dict[int, list[Tensor]] = field(default_factory=lambda: defaultdict(list))

    def window(self, t: Tensor) -> Tensor:
        """The same view in the program's memory; what was not moved stays."""
        if storage(t) not in self.moved:
            return t.detach()
        memory, begin = self.moved[storage(t)]
        offset = begin // t.element_size() + t.storage_offset()
        return torch.empty(0, dtype=t.dtype).set_(memory, offset, t.shape, t.stride())


def allocate(trace: Trace) -> Allocation:
    """New memory for every storage that calls make, shared by those that never live together.

    Calls are taken in order, with a list of free storages for every size. Storages whose memory a
    call brings are not shared: they are given back to torch's allocator instead.
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
        for ended in range(now, life.first):  # what ends at a call is still read by it
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
