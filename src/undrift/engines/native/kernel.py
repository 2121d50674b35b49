"""Lowers the graph of a local step to a kernel: instructions on vectors, for C++ (kernel.h).

A kernel works in sweeps over the vectors, block by block: a block goes through all instructions of
a sweep while it is in the cache. A value that is read in its own sweep only is kept in a register
of one block; any other value needs a vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from undrift.engines.native.step_graph import MODEL, Graph, Node

GRADIENT, SCRATCH = "gradient", "scratch"
"""Vectors that are not variables: the gradient, and memory for values that outlive a sweep."""


class Instruction(NamedTuple):
    """`dst`, `a` and `b` are vectors (or registers: -1, -2, ...) or scalars; `s` is a scalar."""

    op: str
    dst: int
    a: int
    b: int
    s: int


@dataclass(frozen=True)
class Kernel:
    """A compiled local step, for all clients whose step has the same graph.

    instructions    prologue, then the step
    prologue        number of its instructions; they run before a client's first step only
    vectors         of each vector: the name of a variable, GRADIENT or SCRATCH
    scalars         names of the scalars, constant or computed; number 0 is unused
    registers       number of registers
    model_in_place  whether the model is updated in the vector that the gradient's program reads
    """

    instructions: tuple[Instruction, ...]
    prologue: int
    vectors: tuple[str, ...]
    scalars: tuple[str, ...]
    registers: int
    model_in_place: bool

    def __str__(self) -> str:
        lines = [self._line(instruction) for instruction in self.instructions]
        if self.prologue:
            lines.insert(self.prologue, "-- the above before the first step only --")
        return "\n".join(lines)

    def _line(self, instruction: Instruction) -> str:
        op, dst, a, b, s = instruction

        def vector(k: int) -> str:
            name = self.vectors[k] if k >= 0 else f"r{-k}"
            return f"{name}{k}" if name == SCRATCH else name

        of_scalars = op.startswith("S_")
        operand = self.scalars.__getitem__ if of_scalars else vector
        result = self.scalars.__getitem__ if of_scalars or op == "DOT" else vector
        operands = [operand(k) for k in dict.fromkeys((a, b))] + [self.scalars[s]] * bool(s)
        return f"{op:<10} {result(dst)} <- {', '.join(operands)}"

    def assemble(self) -> Code:
        """The kernel in C++, for a client's first launch and for later ones.

        Later launches skip the prologue, as its vectors persist. Its scalars do not: a prologue
        that computes scalars runs in every launch.
        """
        prologue = self.instructions[: self.prologue]
        keeps_all = not any(op == "DOT" or op.startswith("S_") for op, *_ in prologue)
        first = self._assemble(0)
        later = self._assemble(self.prologue) if keeps_all else first
        return Code((first, later), (first.handle(), later.handle()))

    def _assemble(self, begin: int) -> Any:
        ops = [instruction.op for instruction in self.instructions[begin:]]
        operands = [k for _, *numbers in self.instructions[begin:] for k in numbers]
        sizes = (self.registers, len(self.vectors), len(self.scalars))
        return torch.classes.undrift.Kernel(ops, operands, self.prologue - begin, *sizes)


class Code(NamedTuple):
    """A kernel in C++, with and without its prologue, and both as handles (addresses).

    Keep the objects while their handles are in use: handles do not own them.
    """

    objects: tuple[Any, Any]
    handles: tuple[int, int]


def lower(graph: Graph) -> Kernel:
    """The kernel of a graph, after all passes."""
    places = _Places(graph)
    instructions, prologue = [], 0
    for k, node in enumerate(graph.nodes):
        if node.op != "input":
            instructions.append(_instruction(graph, node, places))
        if k < graph.prologue:
            prologue = len(instructions)
    points = [node.args for node in graph.nodes if node.op == "gradient"]
    return Kernel(
        instructions=tuple(instructions),
        prologue=prologue,
        vectors=tuple(places.vectors),
        scalars=tuple(places.scalars),
        registers=places.registers,
        model_in_place=points == [(MODEL,)] and MODEL in dict(graph.outputs),
    )


def _instruction(graph: Graph, node: Node, places: _Places) -> Instruction:
    """The instruction of a node, chosen by the kinds of its arguments."""
    kinds, name = graph.kinds(node), node.op.upper()
    if set(kinds) == {"s"}:
        numbers = [places.scalar(arg) for arg in node.args]
        return Instruction(f"S_{name}", places.scalar(node.name), numbers[0], numbers[-1], 0)
    # Sources first: the result may reuse the register of an argument that is not read later.
    vectors = [places.source(arg, node) for arg in graph.vectors(node)]
    s = places.scalar(node.args[kinds.index("s")]) if "s" in kinds else 0
    name = {"vs": f"{name}S", "sv": f"R{name}S"}.get(kinds, name)
    result = places.scalar(node.name) if node.scalar else places.result(node)
    return Instruction(name, result, vectors[0], vectors[-1], s)


class _Places:
    """Register and buffer allocation: where each value of a graph is while its kernel runs."""

    def __init__(self, graph: Graph) -> None:
        self.vectors: list[str] = []
        self.scalars = [""]
        self.registers = 0
        self._sweep = _sweeps(graph)
        self._variables = {value: variable for variable, value in graph.outputs}
        self._readers = {arg: [n for n in graph.nodes if arg in n.args] for arg in graph.named}
        self._found: dict[str, int] = {}
        self._free: list[int] = []

    def scalar(self, name: str) -> int:
        """The number of a scalar."""
        if name not in self.scalars:
            self.scalars.append(name)
        return self.scalars.index(name)

    def source(self, name: str, reader: Node) -> int:
        """The place of a vector that a node reads; a register is freed by its last reader."""
        where = self._found[name] if name in self._found else self._vector(name)
        if where < 0 and reader is self._readers[name][-1] and where not in self._free:
            self._free.append(where)
        return where

    def result(self, node: Node) -> int:
        """The place for a node's result: gradient, its variable, scratch vector or register."""
        if node.op == "gradient":
            where = self._vector(GRADIENT)
        elif node.name in self._variables:
            where = self._vector(self._variables[node.name])
        elif any(self._sweep[r.name] != self._sweep[node.name] for r in self._readers[node.name]):
            where = len(self.vectors)
            self.vectors.append(SCRATCH)
        else:
            if not self._free:
                self.registers += 1
                self._free.append(-self.registers)
            where = self._free.pop()
        self._found[node.name] = where
        return where

    def _vector(self, name: str) -> int:
        """The number of the vector of a variable, or of the gradient."""
        if name not in self.vectors:
            self.vectors.append(name)
        return self.vectors.index(name)


def _sweeps(graph: Graph) -> dict[str, int]:
    """The number of the sweep that computes each node.

    Gradients and scalars need whole vectors, so each ends a sweep and gets its own number. The
    prologue ends a sweep too.
    """
    found, now = {}, 0
    for k, node in enumerate(graph.nodes):
        now += k == graph.prologue
        alone = node.op == "gradient" or node.scalar
        found[node.name] = now + alone
        now += 2 * alone
    return found
