"""Compiles an algorithm's local step (hooks, graph, passes, kernel) and binds it to clients.

A step is compiled once for all clients whose hooks see the same numbers, and bound for each client
to the vectors of its variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from undrift.core import Algorithm, Client, Struct
from undrift.engines.native.kernel import GRADIENT, SCRATCH, Code, Kernel, lower
from undrift.engines.native.passes import optimise
from undrift.engines.native.step_graph import Graph
from undrift.engines.native.symbolic import StepTracer, Symbol
from undrift.engines.native.trace import NotTraceable

RECORDS = ("local", "down", "me")
"""The records that a step reads: the client's variables, the download, the client's memory."""

Leaves = Sequence[dict[str, Any]]
"""For each of RECORDS: path → value."""


@dataclass(frozen=True)
class TracedStep:
    """A local step, traced by running an algorithm's hooks on symbols.

    graph      as traced, before passes
    constants  values of its constants
    new        the client's variables after the step, with symbols for vectors
    renumbers  whether the step changes a number among the variables, such as a step counter; then
               the next step has other constants
    """

    graph: Graph
    constants: list[float]
    new: Struct
    renumbers: bool


def trace_step(
    algorithm: Algorithm,
    local: Struct,
    down: Struct,
    me: Struct,
    client: Client,
    weight_decay: float,
) -> TracedStep:
    """Trace `direction` and `move`, with symbols for the vectors of these records."""
    tracer = StepTracer()
    records = zip((local, down, me), RECORDS, strict=True)
    old, its_down, its_me = (tracer.inputs(record, name) for record, name in records)

    def grad(at: Symbol) -> Symbol:
        gradient = tracer.add("gradient", at)
        return gradient + weight_decay * at if weight_decay else gradient

    try:
        d = algorithm.direction(grad, old, its_down, its_me, client)
        new = algorithm.move(old, d, its_down, client)
    except NotTraceable:
        raise
    except Exception as error:
        raise NotTraceable(f"a local step that fails on symbols: {error}") from None
    outputs, renumbers = _changes(dict(old.leaves()), dict(new.leaves()))
    return TracedStep(Graph(tuple(tracer.nodes), outputs), tracer.constants, new, renumbers)


def _changes(
    before: dict[str, Any], after: dict[str, Any]
) -> tuple[tuple[tuple[str, str], ...], bool]:
    """The outputs of a step's graph (changed vectors), and whether the step changes numbers."""
    if before.keys() != after.keys():
        raise NotTraceable("a local step that changes which variables there are")
    outputs, renumbers = {}, False
    for name, value in after.items():
        was = before[name]
        if isinstance(value, Symbol) and isinstance(was, Symbol) and not value.scalar:
            if value.name != was.name:
                outputs[was.name] = value.name
        elif isinstance(value, Symbol) or isinstance(was, Symbol):
            raise NotTraceable(f"a local step that makes {name} another kind of value")
        else:
            renumbers |= value != was
    if outputs.keys() & outputs.values():
        raise NotTraceable("a local step that exchanges variables")
    return tuple(outputs.items()), renumbers


@lru_cache(maxsize=256)
def compile_graph(graph: Graph) -> tuple[Kernel, Code]:
    kernel = lower(optimise(graph))
    return kernel, kernel.assemble()


@dataclass(frozen=True)
class Step:
    """A compiled local step, for all clients with the same numbers.

    constants  initial values of the kernel's scalars; 0 for computed ones
    sources    of each vector: number of the record and path in it; None for scratch
    changed    paths of the local variables that the step changes
    new, renumbers  as in `TracedStep`
    """

    kernel: Kernel
    code: Code
    constants: list[float]
    sources: list[tuple[int, str] | None]
    changed: list[str]
    new: Struct
    renumbers: bool

    def bind(self, records: Leaves, x: Tensor, g: Tensor, homes: dict[str, Tensor]) -> BoundStep:
        """Bind the step to one client. The gradient's program reads the model at x and writes to g.

        `homes` holds the client's copies of the variables that steps change: all its steps share
        them, and the records that were given stay unchanged. Missing ones are added.
        """
        mine, down, me = records
        # With the model in place, the kernel updates x itself: a launch first copies the client's y
        # to x, and at the end x to y's home. Otherwise y is a vector like the others.
        comes = goes = x
        if self.kernel.model_in_place:
            comes = mine["y"]
            if "y" not in homes:
                homes["y"] = torch.empty_like(x)
            goes = homes["y"]
        for name in self.changed:
            if name not in homes:
                homes[name] = mine[name].clone()
        mine = mine | homes
        given = (mine | {"y": x} if self.kernel.model_in_place else mine, down, me, {"": g})
        vectors = [comes, goes]
        for source in self.sources:
            vectors.append(given[source[0]][source[1]] if source else torch.empty_like(x))
        return BoundStep(self, self.code.handles[0], vectors, _at_home(self.new, mine))


@dataclass(slots=True)
class BoundStep:
    """A local step bound to one client; it can be repeated while the numbers stay the same.

    handle   of the kernel to run, one of the two in `Code`
    vectors  the model's source before all steps, its target after them, then the kernel's vectors
    local    the client's variables, in the memory that the steps update
    """

    step: Step
    handle: int
    vectors: list[Tensor]
    local: Struct

    @property
    def resumed(self) -> BoundStep:
        """The same step for the client's next launch: without prologue, from the last model."""
        _, goes, *others = self.vectors
        return BoundStep(self.step, self.step.code.handles[1], [goes, goes, *others], self.local)


def compile_step(
    algorithm: Algorithm,
    local: Struct,
    down: Struct,
    me: Struct,
    client: Client,
    weight_decay: float,
) -> Step:
    """Compile the next local step, for all clients that have the same numbers as this one."""
    traced = trace_step(algorithm, local, down, me, client, weight_decay)
    kernel, code = compile_graph(traced.graph)
    values = {f"#{k}": value for k, value in enumerate(traced.constants)}
    return Step(
        kernel=kernel,
        code=code,
        constants=[values.get(name, 0.0) for name in kernel.scalars],
        sources=[_source(name) for name in kernel.vectors],
        changed=[variable.partition(".")[2] for variable, _ in traced.graph.outputs],
        new=traced.new,
        renumbers=traced.renumbers,
    )


def _source(vector: str) -> tuple[int, str] | None:
    record, _, path = vector.partition(".")
    return None if vector == SCRATCH else ((*RECORDS, GRADIENT).index(record), path)


def _at_home(new: Struct, vectors: dict[str, Any], prefix: str = "") -> Struct:
    """The variables after a step: vectors in their homes, numbers with their new values."""

    def value(name: str, after: Any) -> Any:
        if isinstance(after, Struct):
            return _at_home(after, vectors, f"{prefix}{name}.")
        return vectors[prefix + name] if isinstance(after, Symbol) else after

    return Struct(**{name: value(name, after) for name, after in new.items()})
