"""An algorithm's local step as a program: its hooks run once on symbols, which note the arithmetic.

What direction and move make of the gradient becomes a list of operations on whole vectors that runs
block by block in C++ (program.cpp), so that a block passes through all of them in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undrift.core import Algorithm, Client, Struct
from undrift.engines.native.plan import GRADIENT, SCRATCH, Plan, make_plan
from undrift.engines.native.symbols import Symbol, Tape
from undrift.engines.native.trace import NotTraceable

Records = Sequence[dict[str, Any]]
"""What a step reads: the leaves of local, down and me."""


@dataclass(slots=True)
class Step:
    """A local step of one client, ready to run as often as its numbers stay the same.

    recipe   what it was made from
    handle   the rule that it runs, one of its plan's
    vectors  where the model comes from and where it goes to, then those of the recipe's rule
    local    the client's variables after it, in the memory where it changes them
    """

    recipe: Recipe
    handle: int
    vectors: list[Tensor]
    local: Struct

    @property
    def onwards(self) -> Step:
        """The same step from where the last one ended; what that computed once is still there."""
        _, goes, *others = self.vectors
        return Step(self.recipe, self.recipe.plan.handles[1], [goes, goes, *others], self.local)


@dataclass(frozen=True)
class Recipe:
    """A local step of any client with the same numbers.

    names    where each input of the plan is found: which record (0 local, 1 down, 2 me), and path
    changed  the variables that it changes, by path, and the places of their symbols
    new      the client's variables after it, symbols for vectors
    once     whether the next step has other numbers
    """

    plan: Plan
    names: dict[int, tuple[int, str]]
    constants: list[float]
    changed: dict[str, int]
    new: Struct
    once: bool

    def step(self, records: Records, x: Tensor, g: Tensor, homes: dict[str, Tensor]) -> Step:
        """The step of one client; the model is at x and its gradient at g where the program runs.

        `homes` is the memory of the variables that steps change, filled at the first step.
        """
        mine, down, me = records
        comes = goes = x
        if self.plan.moves_x:
            comes = mine["y"]
            if "y" not in homes:
                homes["y"] = torch.empty_like(x)
            goes = homes["y"]
        for name in self.changed:
            if name not in homes:
                homes[name] = mine[name].clone()
        mine = mine | homes
        given = (mine | {"y": x} if self.plan.moves_x else mine, down, me)
        vectors = [comes, goes]
        for place in self.plan.vectors:
            if place == GRADIENT:
                vectors.append(g)
            elif place == SCRATCH:
                vectors.append(torch.empty_like(x))
            else:
                record, name = self.names[place]
                vectors.append(given[record][name])
        return Step(self, self.plan.handles[0], vectors, _at_home(self.new, mine))


def recipe(
    algorithm: Algorithm, local: Struct, down: Struct, me: Struct, c: Client, weight_decay: float
) -> Recipe:
    """The next local step of an algorithm, for all clients that have these numbers."""
    tape = Tape()
    old, its_down, its_me = tape.take(local), tape.take(down), tape.take(me)

    def grad(at: Symbol) -> Symbol:
        gradient = Symbol(tape, "GRADIENT", (at,))
        return gradient + weight_decay * at if weight_decay else gradient

    try:
        d = algorithm.direction(grad, old, its_down, its_me, c)
        new = algorithm.move(old, d, its_down, c)
    except NotTraceable:
        raise
    except Exception as error:
        raise NotTraceable(f"a local step that fails on symbols: {error}") from None

    before = dict(old.leaves())
    changed, once = _changes(before, dict(new.leaves()))
    form = tuple(
        (s.code, s.number, *(a.place if isinstance(a, Symbol) else -1 for a in s.args))
        for s in tape.symbols
    )
    plan = make_plan(form, tuple(changed.values()), before["y"].place)
    names = {
        symbol.place: (number, name)
        for number, record in enumerate((old, its_down, its_me))
        for name, symbol in record.leaves()
        if isinstance(symbol, Symbol)
    }
    constants = [_constant(tape, at) for at in plan.numbers]
    return Recipe(
        plan, names, constants, {name: was for name, (was, _) in changed.items()}, new, once
    )


def _constant(tape: Tape, at: tuple[int, int] | float | None) -> float:
    """A number of a plan: an argument of a symbol, or the plan's own; 0 until it is computed."""
    return float(tape.symbols[at[0]].args[at[1]]) if isinstance(at, tuple) else at or 0.0


def _changes(
    before: dict[str, Any], after: dict[str, Any]
) -> tuple[dict[str, tuple[int, int]], bool]:
    """Which vectors a step changes (from and to which symbol), and whether numbers change too."""
    if before.keys() != after.keys():
        raise NotTraceable("a local step that changes which variables there are")
    changed, numbers = {}, False
    for name, value in after.items():
        was = before[name]
        if isinstance(value, Symbol) and isinstance(was, Symbol) and not value.number:
            if value is not was:
                changed[name] = (was.place, value.place)
        elif isinstance(value, Symbol) or isinstance(was, Symbol):
            raise NotTraceable(f"a local step that makes {name} another kind of value")
        else:
            numbers |= value != was
    inputs = {was for was, _ in changed.values()}
    if any(now in inputs for _, now in changed.values()):
        raise NotTraceable("a local step that exchanges variables")
    return changed, numbers


def _at_home(new: Struct, vectors: dict[str, Any], prefix: str = "") -> Struct:
    """The variables after a step: vectors where steps change them, numbers as they became."""

    def value(name: str, after: Any) -> Any:
        if isinstance(after, Struct):
            return _at_home(after, vectors, f"{prefix}{name}.")
        return vectors[prefix + name] if isinstance(after, Symbol) else after

    return Struct(**{name: value(name, after) for name, after in new.items()})
