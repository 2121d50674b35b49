"""A guess at what went wrong: known mistakes that, made in the reference, give the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from undrift.checks.conform.frame import Rule
from undrift.checks.conform.mistakes import lattice, made, said
from undrift.checks.conform.problem import Record, Scenario, play
from undrift.checks.conform.report import Guess

MOST = 3
"""mistakes that are tried together"""

Evidence = tuple[str, Scenario, list[Record]]
"""a probe, a scenario that it played, and what the adapter made of it"""


def guesses(
    rule: type[Rule], evidence: Sequence[Evidence], deviating: Sequence[str], limit: float
) -> list[Guess]:
    """The fewest known mistakes that reproduce everything; else those of each probe alone."""
    ordered = sorted(evidence, key=lambda one: one[0] not in deviating)
    for states in (True, False):
        if found := _explanations(rule, ordered, limit, states, MOST):
            return [Guess(*one, states=states) for one in found]
    guesses = []
    for name in deviating:
        own = [one for one in evidence if one[0] == name]
        if found := _explanations(rule, own, limit, False, 2):
            guesses += [Guess(*one, scope=name) for one in found[:1]]
    return guesses


def _explanations(
    rule: type[Rule], evidence: Sequence[Evidence], limit: float, states: bool, most: int
) -> list[tuple[tuple[str, ...], str]]:
    """The smallest sets of mistakes that reproduce the evidence, by name and in words."""
    for size in range(1, most + 1):
        found = [
            (tuple(one.__name__ for one in some), said(some))
            for some in lattice(rule, size)
            if all(_reproduces(made(rule, some), *one[1:], limit, states) for one in evidence)
        ]
        if found:
            return found
    return []


def _reproduces(
    wrong: Rule, scenario: Scenario, played: Sequence[Record], limit: float, states: bool
) -> bool:
    with np.errstate(all="ignore"):
        return all(
            gap(a, b) <= limit
            for found, made in zip(played, play(wrong, scenario), strict=True)
            for which in ({False, states})
            for _, a, b in pairs(found, made, which)
        )


def pairs(
    found: Record, wanted: Record, states: bool
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Corresponding quantities of two records: the states, or x."""
    if not states:
        yield "x", found.x, wanted.x
        return
    for name, value in wanted.states.items():
        one = found.states.get(name)
        if isinstance(one, Mapping):
            for i in one:
                yield f"{name} of client {i}", one[i], value[i]
        elif one is not None:
            yield name, one, value


def gap(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference, relative to the largest value where that is above 1."""
    with np.errstate(all="ignore"):
        differences = np.abs(found - wanted)[~(np.isnan(found) & np.isnan(wanted))]
        gap = float(differences.max(initial=0.0) / max(1.0, np.nanmax(np.abs(wanted), initial=0.0)))
    return gap if np.isfinite(gap) else np.inf
