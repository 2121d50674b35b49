"""Kernels: the graph of a local step as instructions for C++ (kernel.h).

A kernel sweeps over the vectors block by block, so that a block goes through many instructions
while it is in the cache. What is read in the same sweep only lives in a register, as large as a
block; everything else needs a vector of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from undrift.engines.native.step_graph import MODEL, Graph, Node

GRADIENT, SCRATCH = "gradient", "scratch"
"""vectors that are no variables: the gradient, and memory for what outlives a sweep"""


class Instruction(NamedTuple):
    """`dst`, `a` and `b` are vectors (or registers: -1, -2, ...) or scalars; `s` is a scalar."""

    op: str
    dst: int
    a: int
    b: int
    s: int


@dataclass(frozen=True)
class Kernel:
    """A local step of any client whose step has the same graph.

    instructions    of a step, after those of the prologue, which run before the first step only
    prologue        how many these are
    vectors         what each vector is: the name of a variable, GRADIENT or SCRATCH
    scalars         the names of the numbered scalars: constants or computed; number 0 is unused
    registers       how many there are
    model_in_place  whether the model is updated where the gradient's program reads it
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
        """The kernel in C++: for a client's first launch, and for later ones.

        The prologue's vectors are still there in later launches, its scalars are not.
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
    """A kernel in C++, with its prologue and without, and both as numbers for a launch.

    Whoever uses the numbers keeps the objects: C++ does not know how long they are needed.
    """

    objects: tuple[Any, Any]
    handles: tuple[int, int]


def lower(graph: Graph) -> Kernel:
    """The kernel of a graph that went through all passes."""
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
    """The instruction of a node: which one depends on the kinds of its arguments."""
    kinds, name = graph.kinds(node), node.op.upper()
    if set(kinds) == {"s"}:
        numbers = [places.scalar(arg) for arg in node.args]
        return Instruction(f"S_{name}", places.scalar(node.name), numbers[0], numbers[-1], 0)
    # Sources first: a result may take the register of an argument that nobody reads later.
    vectors = [places.source(arg, node) for arg in graph.vectors(node)]
    s = places.scalar(node.args[kinds.index("s")]) if "s" in kinds else 0
    name = {"vs": f"{name}S", "sv": f"R{name}S"}.get(kinds, name)
    result = places.scalar(node.name) if node.scalar else places.result(node)
    return Instruction(name, result, vectors[0], vectors[-1], s)


class _Places:
    """Where the values of a graph are while its kernel runs: buffer and register allocation."""

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
        """Where a vector is that a node reads; a register is free after its last reader."""
        where = self._found[name] if name in self._found else self._vector(name)
        if where < 0 and reader is self._readers[name][-1] and where not in self._free:
            self._free.append(where)
        return where

    def result(self, node: Node) -> int:
        """Where a node's vector is to be."""
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
    """Which sweep over the blocks computes each node.

    Gradients and scalars need whole vectors, so each ends a sweep and has a number of its own. The
    end of the prologue ends a sweep too.
    """
    found, now = {}, 0
    for k, node in enumerate(graph.nodes):
        now += k == graph.prologue
        alone = node.op == "gradient" or node.scalar
        found[node.name] = now + alone
        now += 2 * alone
    return found
