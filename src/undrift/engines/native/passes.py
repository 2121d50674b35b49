"""Optimisation passes over the graph of a local step.

Each returns a graph that computes the same, up to rounding: `regroup_sums` and
`multiply_by_reciprocals` change the order and kind of operations. They depend on the graph only, so
all clients and workers get the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from undrift.engines.native.step_graph import Graph, Node, is_constant


def optimise(graph: Graph) -> Graph:
    """Apply all passes, in order."""
    return reduce(lambda made, transform: transform(made), PASSES, graph)


def eliminate_dead_nodes(graph: Graph) -> Graph:
    """Remove nodes on which no output depends.

    Gradients stay: the first gives the loss and updates the buffers, and each may draw random
    numbers.
    """
    live, kept = {value for _, value in graph.outputs}, []
    for node in reversed(graph.nodes):
        if node.name in live or node.op == "gradient":
            live.update(node.args)
            kept.append(node)
    return graph.with_nodes(reversed(kept))


def multiply_by_reciprocals(graph: Graph) -> Graph:
    """Replace division by a loop-invariant vector by multiplication with its reciprocal.

    Such a vector is √v + ε in adaptive methods that keep v fixed in local training (FedGBO).
    """
    names, reciprocals, nodes = graph.new_names(), dict[str, str](), list[Node]()
    for node in graph.nodes:
        varies = node.name not in graph.invariant
        if node.op == "div" and graph.kinds(node) == "vv" and varies:
            dividend, divisor = node.args
            if divisor in graph.invariant:
                if divisor not in reciprocals:
                    reciprocals[divisor] = next(names)
                    nodes.append(Node(reciprocals[divisor], "reciprocal", (divisor,)))
                node = replace(node, op="mul", args=(dividend, reciprocals[divisor]))
        nodes.append(node)
    return graph.with_nodes(nodes)


def regroup_sums(graph: Graph) -> Graph:
    """Collect the loop-invariant terms of a sum in one node, so that it is computed only once.

    G - h + k (y - x) becomes (G + k y) + (-h - k x). Only sums with several invariant terms are
    regrouped: in y - η (...) the small terms must be added before they are rounded to the precision
    of y.
    """
    names, nodes = graph.new_names(), list[Node]()
    for node in graph.nodes:
        varying_sum = _is_sum(graph, node) and node.name not in graph.invariant
        if varying_sum and all(_has_invariant_term(graph, arg) for arg in node.args):
            halves = [_terms(graph, node, invariant, names, nodes) for invariant in (False, True)]
            node = replace(node, op="add", args=tuple(half for half in halves if half))
        nodes.append(node)
    return eliminate_dead_nodes(graph.with_nodes(nodes))  # the sums before regrouping


def _is_sum(graph: Graph, node: Node) -> bool:
    return node.op in ("add", "sub") and graph.kinds(node) == "vv"


def _is_multiple(graph: Graph, node: Node) -> bool:
    """Whether a node is a vector times a loop-invariant scalar."""
    if node.op in ("mul", "div") and graph.kinds(node) == "vs":
        return is_constant(node.args[1]) or node.args[1] in graph.invariant
    return node.op == "neg" and not node.scalar


def _is_separable(graph: Graph, name: str) -> bool:
    """Whether a varying node can be split into terms: it is linear and has one reader."""
    node = graph.named[name]
    linear = _is_sum(graph, node) or _is_multiple(graph, node)
    return linear and name not in graph.invariant and graph.uses[name] == 1


def _has_invariant_term(graph: Graph, name: str) -> bool:
    """Whether a vector is invariant, or a sum with an invariant term."""
    if name in graph.invariant or not _is_separable(graph, name):
        return name in graph.invariant
    return any(_has_invariant_term(graph, arg) for arg in graph.vectors(graph.named[name]))


def _terms(
    graph: Graph, node: Node, invariant: bool, names: Iterator[str], nodes: list[Node]
) -> str | None:
    """The node with the invariant (or else varying) terms of a sum or multiple; None without any.

    New nodes are appended to `nodes`.
    """
    args: list[str | None] = []
    for arg in node.args:
        if graph.is_scalar(arg):
            args.append(arg)
        elif _is_separable(graph, arg):
            args.append(_terms(graph, graph.named[arg], invariant, names, nodes))
        else:
            args.append(arg if (arg in graph.invariant) == invariant else None)
    op = node.op
    if op in ("add", "sub") and None in args:
        first, second = args
        if op == "add" or second is None:
            return first or second
        op, args = "neg", [second]  # the first term of the difference belongs to the other half
    if None in args:
        return None
    nodes.append(Node(next(names), op, tuple(arg for arg in args if arg)))
    return nodes[-1].name


def fuse_axpy(graph: Graph) -> Graph:
    """Fuse a product and a sum into one operation: a + s b, a - s b."""
    nodes = []
    for node in graph.nodes:
        if _is_sum(graph, node):
            first, second = node.args
            for other, scaled in ((first, second), (second, first)):
                product = graph.named[scaled]
                plain = product.op == "mul" and graph.kinds(product) == "vs"
                if plain and graph.uses[scaled] == 1 and (node.op == "add" or scaled == second):
                    op = "axpy" if node.op == "add" else "axmy"
                    node = replace(node, op=op, args=(other, *product.args))
                    break
        nodes.append(node)
    return eliminate_dead_nodes(graph.with_nodes(nodes))


def hoist_invariants(graph: Graph) -> Graph:
    """Move loop-invariant nodes into the prologue."""
    # `sorted` is stable, so nodes stay after their arguments.
    nodes = sorted(graph.nodes, key=lambda node: node.name not in graph.invariant)
    return replace(graph, nodes=tuple(nodes), prologue=len(graph.invariant))


def separate_gradients(graph: Graph) -> Graph:
    """Copy each gradient if a step has several, as the program writes all to the same vector."""
    if sum(node.op == "gradient" for node in graph.nodes) < 2:
        return graph
    names, nodes = graph.new_names(), list[Node]()
    for node in graph.nodes:
        if node.op == "gradient":
            nodes.append(replace(node, name=next(names)))
            node = Node(node.name, "copy", (nodes[-1].name,))
        nodes.append(node)
    return graph.with_nodes(nodes)


def write_outputs_in_place(graph: Graph) -> Graph:
    """Compute every output in the memory of its variable, or copy it there at the end of the step.

    A copy is needed if the value is an input or gradient, if it is also the output of another
    variable, or if the variable's old value is read after the new one is computed.
    """
    names, nodes, outputs = graph.new_names(), list(graph.nodes), dict[str, str]()
    order = [node.name for node in graph.nodes]
    for variable, value in graph.outputs:
        later = graph.nodes[order.index(value) + 1 :] if value in order else ()
        if (
            graph.named[value].op in ("input", "gradient")
            or value in outputs.values()
            or any(variable in node.args for node in later)
        ):
            nodes.append(Node(next(names), "copy", (value,)))
            value = nodes[-1].name
        outputs[variable] = value
    return replace(graph, nodes=tuple(nodes), outputs=tuple(outputs.items()))


PASSES = (
    eliminate_dead_nodes,
    multiply_by_reciprocals,
    regroup_sums,
    fuse_axpy,
    hoist_invariants,
    separate_gradients,
    write_outputs_in_place,
)
