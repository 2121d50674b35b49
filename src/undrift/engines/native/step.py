"""An algorithm's local step as a kernel: hooks on symbols, graph, passes, kernel; then bound.

A step is compiled once for all clients whose hooks see the same numbers, and bound for each client
to the memory of its variables.
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
"""the records of variables that a step reads"""

Leaves = Sequence[dict[str, Any]]
"""those of RECORDS, by path"""


@dataclass(frozen=True)
class TracedStep:
    """What an algorithm's hooks did with symbols.

    graph      of the step, as written
    constants  the values of its constants
    new        the client's variables after the step, symbols for vectors
    renumbers  whether the step changes numbers among the variables, so that the next one differs
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
    """Run `direction` and `move` on symbols for the vectors of these records."""
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
    """Which vectors a step changes, as outputs of its graph, and whether it changes numbers."""
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
    """A compiled local step of any client with the same numbers.

    constants  the kernel's scalars; 0 for those that it computes
    sources    where each of its vectors is found: which record, and the path in it; None: scratch
    changed    the paths of the local variables that it changes
    new        as of `TracedStep`
    renumbers  as of `TracedStep`
    """

    kernel: Kernel
    code: Code
    constants: list[float]
    sources: list[tuple[int, str] | None]
    changed: list[str]
    new: Struct
    renumbers: bool

    def bind(self, records: Leaves, x: Tensor, g: Tensor, homes: dict[str, Tensor]) -> BoundStep:
        """The step of one client, whose gradient's program reads the model at x and writes to g.

        `homes` is the memory of the variables that steps change, filled at the first step.
        """
        mine, down, me = records
        # With the model in place, the kernel works on x itself: a launch begins by copying the
        # client's y there, and ends by copying it to y's home. Otherwise y is a vector like others.
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
    """A local step of one client, ready to run as often as its numbers stay the same.

    step     what was bound
    handle   the kernel that it runs, one of the two of `Code`
    vectors  where the model is read and written before and after all steps, then the kernel's
    local    the client's variables after the steps, in the memory where they change them
    """

    step: Step
    handle: int
    vectors: list[Tensor]
    local: Struct

    @property
    def resumed(self) -> BoundStep:
        """The same step from where the last launch ended, without its prologue."""
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
    """The next local step of an algorithm, for all clients that have these numbers."""
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
    """The variables after a step: vectors where steps change them, numbers as they became."""

    def value(name: str, after: Any) -> Any:
        if isinstance(after, Struct):
            return _at_home(after, vectors, f"{prefix}{name}.")
        return vectors[prefix + name] if isinstance(after, Symbol) else after

    return Struct(**{name: value(name, after) for name, after in new.items()})
