"""The graph of a local step: the arithmetic of `direction` and `move`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

MODEL = "local.y"
"""The variable that holds the client's model."""


@dataclass(frozen=True)
class Node:
    """One operation on parameter vectors or scalars.

    name    unique in the graph; an input has the name of its variable: `local.y`, `down.x`, `me.h`
    op      `input`, `gradient` (of the loss, at a vector), or an operation of kernel.h
    args    names of nodes or constants (`#0`, `#1`, ...)
    scalar  whether the result is a scalar, not a vector
    """

    name: str
    op: str
    args: tuple[str, ...] = ()
    scalar: bool = False

    def __str__(self) -> str:
        return f"{self.name} = {self.op}({', '.join(self.args)})"


@dataclass(frozen=True)
class Graph:
    """A local step. Passes (passes.py) return new graphs.

    nodes     in topological order
    outputs   pairs of a variable and the node with its value after the step
    prologue  number of nodes, from the first, that are computed before a client's first step only

    Constants have no values here, so that one graph serves all step sizes and rounds.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, str], ...]
    prologue: int = 0

    def __str__(self) -> str:
        lines = ["" if node.op == "input" else str(node) for node in self.nodes]
        if any(lines[: self.prologue]):
            lines.insert(self.prologue, "-- the above before the first step only --")
        written = [f"{variable} <- {value}" for variable, value in self.outputs]
        return "\n".join([*filter(None, lines), *written])

    def with_nodes(self, nodes: Iterable[Node]) -> Graph:
        return replace(self, nodes=tuple(nodes))

    @cached_property
    def named(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def uses(self) -> Counter[str]:
        """Number of readers of each value: nodes and outputs."""
        uses = Counter(arg for node in self.nodes for arg in node.args)
        uses.update(value for _, value in self.outputs)
        return uses

    @cached_property
    def invariant(self) -> set[str]:
        """Names of the loop-invariant nodes: they have the same value in all steps of a client."""
        varying = {variable for variable, _ in self.outputs}
        for node in self.nodes:
            if node.op == "gradient" or varying.intersection(node.args):
                varying.add(node.name)
        return self.named.keys() - varying

    def is_scalar(self, arg: str) -> bool:
        return is_constant(arg) or self.named[arg].scalar

    def kinds(self, node: Node) -> str:
        """The kinds of a node's arguments as letters: v for vector, s for scalar."""
        return "".join("s" if self.is_scalar(arg) else "v" for arg in node.args)

    def vectors(self, node: Node) -> list[str]:
        """The arguments of a node that are vectors."""
        return [arg for arg in node.args if not self.is_scalar(arg)]

    def new_names(self) -> Iterator[str]:
        """Unused names for new nodes."""
        return (name for k in count(len(self.nodes)) if (name := f"%{k}") not in self.named)


def is_constant(arg: str) -> bool:
    return arg.startswith("#")
