"""Passes over the graph of a local step: a graph in, a graph out, and the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import dedent

import numpy as np
import pytest

from undrift.engines.native.kernel import lower
from undrift.engines.native.passes import (
    PASSES,
    eliminate_dead_nodes,
    fuse_axpy,
    hoist_invariants,
    multiply_by_reciprocals,
    optimise,
    regroup_sums,
    separate_gradients,
    write_outputs_in_place,
)
from undrift.engines.native.step_graph import Graph, Node

Pass = Callable[[Graph], Graph]


def graph(text: str) -> Graph:
    """A graph as `str` prints it; variables have a dot in their names."""
    nodes: dict[str, Node] = {}
    outputs = []
    for line in dedent(text).strip().splitlines():
        if " <- " in line:
            variable, value = line.split(" <- ")
            outputs.append((variable, value))
            continue
        name, op, inside = re.fullmatch(r"(\S+) = (\w+)\((.*)\)", line).groups()  # type: ignore[union-attr]
        args = tuple(inside.split(", "))
        for arg in args:
            if "." in arg:
                nodes.setdefault(arg, Node(arg, "input"))
        scalar = op == "dot" or all(arg[0] == "#" or nodes[arg].scalar for arg in args)
        nodes[name] = Node(name, op, args, scalar)
    return Graph(tuple(nodes.values()), tuple(outputs))


OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "gradient": lambda a: np.sin(3 * a) + a,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "dot": np.dot,
    "copy": np.copy,
    "reciprocal": lambda a: 1 / a,
    "axpy": lambda a, b, s: a + s * b,
    "axmy": lambda a, b, s: a - s * b,
}


def evaluate(graph: Graph, steps: int = 3, in_place: bool = False) -> dict[str, np.ndarray]:
    """The variables after some steps, from fixed positive numbers.

    in_place  whether an output is written when it is computed, not at the end of the step
    """
    names = {arg for node in graph.nodes for arg in node.args} | dict(graph.outputs).keys()
    draw = np.random.default_rng(0).uniform
    values = {name: draw(0.5, 2, 5) for name in sorted(names) if "." in name}
    values |= {f"#{k}": draw(0.5, 2) for k in range(9)}
    variables = {value: variable for variable, value in graph.outputs}

    def run(nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            if node.op == "input":
                continue
            values[node.name] = OPERATIONS[node.op](*(values[arg] for arg in node.args))
            if in_place and node.name in variables:
                values[variables[node.name]] = values[node.name]

    run(graph.nodes[: graph.prologue])
    for _ in range(steps):
        run(graph.nodes[graph.prologue :])
        if not in_place:
            values |= {variable: values[value] for variable, value in graph.outputs}
    return {variable: values[variable] for variable, _ in graph.outputs}


def check(transform: Pass, before: str, after: str, in_place: bool = False) -> None:
    made = transform(graph(before))
    assert str(made) == dedent(after).strip()
    assert_same(graph(before), made, in_place)


def assert_same(before: Graph, after: Graph, in_place: bool) -> None:
    wanted, got = evaluate(before), evaluate(after, in_place=in_place)
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-12)


def test_nodes_that_no_output_needs_are_dropped_but_gradients_are_not() -> None:
    check(
        eliminate_dead_nodes,
        """
        %0 = gradient(local.y)
        %1 = mul(me.h, #0)
        %2 = sqrt(%1)
        %3 = sub(local.y, %1)
        local.y <- %3
        """,
        """
        %0 = gradient(local.y)
        %1 = mul(me.h, #0)
        %3 = sub(local.y, %1)
        local.y <- %3
        """,
    )


def test_divisions_by_an_invariant_share_its_reciprocal() -> None:
    check(
        multiply_by_reciprocals,
        """
        %0 = sqrt(me.v)
        %1 = gradient(local.y)
        %2 = div(%1, %0)
        %3 = div(local.m, %0)
        %4 = div(me.h, %0)
        %5 = div(%2, %1)
        local.y <- %3
        local.m <- %5
        local.z <- %4
        """,
        """
        %0 = sqrt(me.v)
        %1 = gradient(local.y)
        %10 = reciprocal(%0)
        %2 = mul(%1, %10)
        %3 = mul(local.m, %10)
        %4 = div(me.h, %0)
        %5 = div(%2, %1)
        local.y <- %3
        local.m <- %5
        local.z <- %4
        """,
    )


def test_invariant_terms_meet_in_one() -> None:
    """G - h + k (y - x) becomes (G + k y) + (-h - k x); y - η (...) stays."""
    check(
        regroup_sums,
        """
        %0 = gradient(local.y)
        %1 = sub(%0, me.h)
        %2 = sub(local.y, down.x)
        %3 = mul(%2, #0)
        %4 = add(%1, %3)
        %5 = mul(%4, #1)
        %6 = sub(local.y, %5)
        local.y <- %6
        """,
        """
        %0 = gradient(local.y)
        %10 = mul(local.y, #0)
        %11 = add(%0, %10)
        %12 = neg(me.h)
        %13 = neg(down.x)
        %14 = mul(%13, #0)
        %15 = add(%12, %14)
        %4 = add(%11, %15)
        %5 = mul(%4, #1)
        %6 = sub(local.y, %5)
        local.y <- %6
        """,
    )


def test_sums_that_others_need_are_not_taken_apart() -> None:
    text = """
        %0 = gradient(local.y)
        %1 = sub(%0, me.h)
        %2 = add(%1, down.x)
        local.y <- %2
        local.m <- %1
        """
    check(regroup_sums, text, text)


def test_multiples_are_added_in_one_operation() -> None:
    check(
        fuse_axpy,
        """
        %0 = gradient(local.y)
        %1 = mul(local.y, #0)
        %2 = add(%1, %0)
        %3 = mul(%2, #1)
        %4 = sub(local.y, %3)
        %5 = mul(me.h, #2)
        %6 = sub(%5, %4)
        local.y <- %4
        local.m <- %6
        """,
        """
        %0 = gradient(local.y)
        %2 = axpy(%0, local.y, #0)
        %4 = axmy(local.y, %2, #1)
        %5 = mul(me.h, #2)
        %6 = sub(%5, %4)
        local.y <- %4
        local.m <- %6
        """,
    )


def test_what_is_the_same_in_all_steps_is_computed_before_the_first() -> None:
    check(
        hoist_invariants,
        """
        %0 = gradient(local.y)
        %1 = sqrt(me.v)
        %2 = dot(me.v, %1)
        %3 = mul(%0, %2)
        local.y <- %3
        """,
        """
        %1 = sqrt(me.v)
        %2 = dot(me.v, %1)
        -- the above before the first step only --
        %0 = gradient(local.y)
        %3 = mul(%0, %2)
        local.y <- %3
        """,
    )


def test_gradients_are_copied_if_there_are_several() -> None:
    check(
        separate_gradients,
        """
        %0 = gradient(local.y)
        %1 = gradient(down.x)
        %2 = sub(%0, %1)
        local.y <- %2
        """,
        """
        %5 = gradient(local.y)
        %0 = copy(%5)
        %6 = gradient(down.x)
        %1 = copy(%6)
        %2 = sub(%0, %1)
        local.y <- %2
        """,
    )


def test_outputs_are_written_in_place_or_copied_at_the_end() -> None:
    """m is read after its new value is there, b gets what a gets, c an input."""
    check(
        write_outputs_in_place,
        """
        %0 = gradient(local.y)
        %1 = add(local.m, %0)
        %2 = sub(%1, local.m)
        %3 = add(local.y, %2)
        %4 = neg(me.h)
        local.y <- %3
        local.m <- %1
        local.a <- %4
        local.b <- %4
        local.c <- me.h
        """,
        """
        %0 = gradient(local.y)
        %1 = add(local.m, %0)
        %2 = sub(%1, local.m)
        %3 = add(local.y, %2)
        %4 = neg(me.h)
        %8 = copy(%1)
        %9 = copy(%4)
        %10 = copy(me.h)
        local.y <- %3
        local.m <- %8
        local.a <- %4
        local.b <- %9
        local.c <- %10
        """,
        in_place=True,
    )


STEP = """
    %0 = gradient(local.y)
    %1 = mul(local.y, #0)
    %2 = add(%0, %1)
    %3 = sub(%2, me.h)
    %4 = sub(local.y, down.x)
    %5 = mul(%4, #1)
    %6 = add(%3, %5)
    %7 = sqrt(me.v)
    %8 = div(%6, %7)
    %9 = dot(%8, %8)
    %10 = sqrt(%9)
    %11 = div(%8, %10)
    %12 = gradient(%11)
    %13 = mul(local.m, #2)
    %14 = add(%13, %12)
    %15 = mul(%14, #3)
    %16 = sub(local.y, %15)
    %17 = sub(local.m, %14)
    local.y <- %16
    local.m <- %14
    local.z <- %17
"""
"""with a bit of everything"""


KERNEL = """
    NEG        r1 <- me.h
    NEG        r2 <- down.x
    AXPY       scratch2 <- r1, r2, #1
    SQRT       r2 <- me.v
    RECIPROCAL scratch4 <- r2
    -- the above before the first step only --
    GRADIENT   gradient <- local.y
    COPY       r2 <- gradient
    AXPY       r2 <- r2, local.y, #0
    AXPY       r2 <- r2, local.y, #1
    ADD        r2 <- r2, scratch2
    MUL        scratch7 <- r2, scratch4
    DOT        %9 <- scratch7
    S_SQRT     %10 <- %9
    DIVS       scratch8 <- scratch7, %10
    GRADIENT   gradient <- scratch8
    COPY       r2 <- gradient
    AXPY       r2 <- r2, local.m, #2
    AXMY       local.y <- local.y, r2, #3
    SUB        local.z <- local.m, r2
    COPY       local.m <- r2
"""


@pytest.mark.parametrize("count", range(len(PASSES) + 1))
def test_passes_in_order_keep_the_numbers(count: int) -> None:
    made = graph(STEP)
    for transform in PASSES[:count]:
        made = transform(made)
    assert_same(graph(STEP), made, in_place=count == len(PASSES))


def test_a_kernel_keeps_in_registers_what_one_sweep_reads() -> None:
    """What a dot product, a gradient or the steps after a prologue read needs a whole vector."""
    kernel = lower(optimise(graph(STEP)))
    assert str(kernel) == dedent(KERNEL).strip()


def test_registers_are_used_again() -> None:
    text = """
        %0 = gradient(local.y)
        %1 = sqrt(local.y)
        %2 = mul(%0, %1)
        %3 = mul(%2, %2)
        %4 = add(%3, %2)
        local.y <- %4
        """
    kernel = lower(optimise(graph(text)))
    assert kernel.registers == 2
