"""Plans: a local step, noted as arithmetic on symbols, as operations that program.cpp runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

CODES = """
    ADD SUB MUL DIV MAX MIN ADDS RSUBS MULS RDIVS MAXS MINS DIVS AXPY AXMY
    NEG SQRT ABS SIGN EXP LOG COPY DOT
    S_ADD S_SUB S_MUL S_DIV S_MAX S_MIN S_NEG S_SQRT S_ABS S_SIGN S_EXP S_LOG GRADIENT
"""
CODE = {name: number for number, name in enumerate(CODES.split())}
"""the operations of program.cpp, in its order"""

GRADIENT, SCRATCH = -1, -2
"""vectors that are no input: the gradient, and memory for what several parts of a step share"""


@dataclass
class Plan:
    """A step as operations, for any client whose step has this form.

    operations the numbers of each: code, result, two operands, scalar
    once       how many of them run before the first step only
    vectors    what the numbered vectors are: the place of an input's symbol, GRADIENT or SCRATCH
    numbers    what the numbered scalars are: place and position of a constant, a constant of the
               plan's own, or None if computed
    moves_x    whether the model is changed where the gradient reads it
    rules      with all operations, and without those that run once
    handles    the rules as numbers
    """

    operations: list[tuple[int, ...]] = field(default_factory=list)
    once: int = 0
    vectors: list[int] = field(default_factory=list)
    numbers: list[tuple[int, int] | float | None] = field(default_factory=lambda: [None])
    moves_x: bool = False
    rules: tuple[Any, ...] = ()
    handles: tuple[int, ...] = ()


Form = tuple[tuple[Any, ...], ...]
"""For each symbol of a step: code, whether it is a number, and the places of its arguments (-1: a
constant)."""


@lru_cache(maxsize=256)
def make_plan(form: Form, changed: tuple[tuple[int, int], ...], model: int) -> Plan:
    """Turn symbols into operations, numbering vectors and scalars."""
    return _Planner(form, changed, model).plan


class _Planner:
    def __init__(self, form: Form, changed: tuple[tuple[int, int], ...], model: int) -> None:
        self.form, self.changed = list(form), changed
        self.plan = Plan()
        self.order = self._needed(range(len(form)))
        self.still = self._still()
        self.uses = self._uses()
        self.copied: dict[int, int] = {}
        self.order = self._needed(self._gather())
        self.uses = self._uses()
        self.folded = self._fold()
        kept = [i for i in self.order if i not in self.folded.values()]
        self.order = sorted(kept, key=lambda i: i not in self.still)  # the others in their order
        self.gradients = [i for i in self.order if self.form[i][0] == "GRADIENT"]
        own = len(self.gradients) == 1 and self.arguments(self.gradients[0]) == [model]
        self.plan.moves_x = own and model in dict(changed)
        self.segment = self._segments()
        self.where: dict[int, int] = {}
        self.scalar: dict[int, int] = {}
        self.homes = self._homes()
        self._emit()

    def arguments(self, i: int) -> list[int]:
        return [a for a in self.form[i][2:] if a >= 0]

    def vectors_of(self, i: int) -> list[int]:
        """The vectors that an operation reads, those of what is folded into it included."""
        if i in self.folded:
            inner = self.folded[i]
            kept = [a for a in self.arguments(i) if a != inner]
            return kept + [a for a in self.arguments(inner) if not self.form[a][1]]
        return [a for a in self.arguments(i) if not self.form[a][1]]

    def _needed(self, order: Sequence[int]) -> list[int]:
        """The symbols on which what changes depends, and all gradients, in order."""
        needed = {now for _, now in self.changed}
        needed |= {i for i in order if self.form[i][0] == "GRADIENT"}
        for i in reversed(order):
            if i in needed:
                needed.update(self.arguments(i))
        return [i for i in order if i in needed]

    def _uses(self) -> Counter[int]:
        uses = Counter(a for i in self.order for a in self.arguments(i))
        uses.update(now for _, now in self.changed)
        return uses

    def _still(self) -> set[int]:
        """Symbols that are the same in all steps, so that one computation serves; divisions by them
        become multiplications."""
        moving = {was for was, _ in self.changed}
        still = {i for i in self.order if self.form[i][0] == "INPUT"} - moving
        inverse: dict[int, int] = {}
        for i in list(self.order):
            code, _, *args = self.form[i]
            if code == "INPUT" or code == "GRADIENT":
                continue
            if all(a < 0 or a in still for a in args):
                still.add(i)
            elif code == "DIV" and args[1] in still:
                if args[1] not in inverse:
                    inverse[args[1]] = len(self.form)
                    self.form.append(("INVERT", False, args[1]))
                    self.order.insert(self.order.index(i), inverse[args[1]])
                self.form[i] = ("MUL", False, args[0], inverse[args[1]])
        return still | set(inverse.values())

    def _gather(self) -> list[int]:
        """The order of symbols once every sum has one still term at most.

        G - h + k (y - x) becomes (G + k y) + (-h - k x), whose second half is computed once. This
        is done where the still terms meet and no further out: y - η (...) stays as it is, so that
        what is small is added up before it is rounded to the size of y.
        """
        order: list[int] = []
        for i in reversed(self.order):
            before = len(self.form)
            code, _, *args = self.form[i]
            if code in SUMS and i not in self.still and all(self._has_still(a) for a in args):
                self.form[i] = ("ADD", False, self._part(i, False), self._part(i, True))
            order += [i, *reversed(range(before, len(self.form)))]
        return order[::-1]

    def _linear(self, i: int) -> bool:
        """Whether a symbol is a moving sum or multiple that only one other needs."""
        code, _, *args = self.form[i]
        multiple = code in MULTIPLES and all(a < 0 or a in self.still for a in args[1:])
        return (code in SUMS or multiple) and i not in self.still and self.uses[i] == 1

    def _has_still(self, i: int) -> bool:
        """Whether a symbol is still, or a sum with a still term."""
        inside = self.arguments(i) if self._linear(i) else []
        return i in self.still or any(self._has_still(a) for a in inside if not self.form[a][1])

    def _part(self, i: int, still: bool) -> int | None:
        """A copy of a sum or multiple with its still terms, or its moving ones, alone."""
        code, _, *args = self.form[i]
        parts: list[int | None] = []
        for a in args:
            if a < 0 or self.form[a][1]:
                parts.append(a)
            elif self._linear(a):
                parts.append(self._part(a, still))
            else:
                parts.append(a if (a in self.still) == still else None)
        if code in SUMS and None in parts:
            if code == "ADD" or parts[1] is None:
                return parts[1] if parts[0] is None else parts[0]
            code, parts = "NEG", parts[1:]
        if None in parts:
            return None
        copy = len(self.form)
        self.form.append((code, False, *parts))
        self.copied[copy] = i
        if still:
            self.still.add(copy)
        return copy

    def _fold(self) -> dict[int, int]:
        """Sums with a multiple of a vector that nobody else needs: a + s b in one operation."""
        folded = {}
        for i in self.order:
            code, _, *args = self.form[i]
            candidates = {"ADD": args[::-1], "SUB": args[1:]}.get(code, [])
            for a in candidates:
                if self.form[a][0] == "MULS" and self.uses[a] == 1 and args[0] != args[1]:
                    folded[i] = a
                    break
        return folded

    def _segments(self) -> dict[int, int]:
        """Which pass over the blocks computes each symbol; what is no pass has a number too."""
        segment, now = {}, 0
        for i in self.order:
            if i not in self.still:
                now = max(now, 2 * len(self.form))  # a new pass, which runs in every step
            barrier = self.form[i][0] == "GRADIENT" or self.form[i][1]
            segment[i] = now + barrier
            now += 2 * barrier
        return segment

    def _copied(self, symbol: int) -> bool:
        return self.form[symbol][0] in ("INPUT", "GRADIENT")

    def _homes(self) -> dict[int, int]:
        """Variables that can be changed where they are: nobody reads the old value later."""
        homes: dict[int, int] = {}
        for was, now in self.changed:
            later = self.order[self.order.index(now) + 1 :] if now in self.order else []
            read = any(was in self.vectors_of(i) for i in later)
            if not read and not self._copied(now) and now not in homes:
                homes[now] = was
        return homes

    def vector(self, what: int) -> int:
        """The number of a new vector."""
        self.plan.vectors.append(what)
        return len(self.plan.vectors) - 1

    def number(self, what: tuple[int, int] | float | None) -> int:
        self.plan.numbers.append(what)
        return len(self.plan.numbers) - 1

    def read(self, i: int) -> int:
        """Where the value of a symbol is."""
        if i not in self.where:
            self.where[i] = self.vector(i)
        return self.where[i]

    def operand(self, i: int) -> int:
        """The scalar operand of an operation; 0 if it has none."""
        i = self.folded.get(i, i)
        if self.form[i][0] == "INVERT":
            return self.number(1.0)
        for position, a in enumerate(self.form[i][2:]):
            if a < 0:
                return self.number((self.copied.get(i, i), position))
            if self.form[a][1]:
                return self.scalar[a]
        return 0

    def _emit(self) -> None:
        free: list[int] = []
        most = 0
        gradient = self.vector(GRADIENT) if self.gradients else 0
        readers = {a: i for i in self.order for a in self.vectors_of(i)}
        for i in self.order:
            code, number, *args = self.form[i]
            if code == "INPUT":
                continue
            if number:
                self.scalar[i] = self.number(None)
            if code == "GRADIENT":
                self.add(code, gradient, self.read(args[0]))
                self.where[i] = gradient
                if len(self.gradients) > 1:
                    self.where[i] = self.vector(SCRATCH)
                    self.add("COPY", self.where[i], gradient)
            elif code == "DOT":
                self.add(code, self.scalar[i], *(self.read(a) for a in args))
            elif number:
                operands = [
                    self.scalar[a] if a >= 0 else self.number((i, k)) for k, a in enumerate(args)
                ]
                self.add(code, self.scalar[i], *operands)
            else:
                if i in self.folded:
                    code = "AXPY" if code == "ADD" else "AXMY"
                sources = [self.read(a) for a in self.vectors_of(i)]
                scalar = self.operand(i) if code in WITH_SCALAR else 0
                code = "RDIVS" if code == "INVERT" else code
                for a in dict.fromkeys(self.vectors_of(i)):
                    if readers[a] == i and self.where[a] < 0:
                        free.append(self.where[a])
                if i in self.homes:
                    self.where[i] = self.read(self.homes[i])
                elif self._crosses(i):
                    self.where[i] = self.vector(SCRATCH)
                else:
                    if not free:
                        most += 1
                        free.append(-most)
                    self.where[i] = free.pop()
                self.add(code, self.where[i], sources[0], sources[-1], scalar)
            if i in self.still:
                self.plan.once = len(self.plan.operations)
        for was, now in self.changed:
            if self.homes.get(now) != was:
                self.add("COPY", self.read(was), self.read(now))
        first = self._rule(0, most)
        numbers = any(self.form[i][1] for i in self.order if i in self.still)
        later = first if numbers else self._rule(self.plan.once, most)  # vectors alone are kept
        self.plan.rules = first, later
        self.plan.handles = first.handle(), later.handle()

    def _rule(self, begin: int, temporaries: int) -> Any:
        plan = self.plan
        flat = [n for operation in plan.operations[begin:] for n in operation]
        sizes = (temporaries, len(plan.vectors), len(plan.numbers))
        return torch.classes.undrift.Rule(flat, plan.once - begin, *sizes)

    def _crosses(self, i: int) -> bool:
        """Whether a vector is read by another pass than the one that computes it."""
        stored = any(now == i for _, now in self.changed)
        gathered = any(
            i in self.vectors_of(j) and self.segment[j] != self.segment[i] for j in self.order
        )
        return stored or gathered

    def add(self, code: str, dst: int, a: int, b: int | None = None, s: int = 0) -> None:
        self.plan.operations.append((CODE[code], dst, a, a if b is None else b, s))


SUMS, MULTIPLES = {"ADD", "SUB"}, {"MULS", "DIVS", "NEG"}

WITH_SCALAR = {
    *["ADDS", "RSUBS", "MULS", "RDIVS", "MAXS", "MINS", "DIVS", "AXPY", "AXMY", "INVERT"]
}
