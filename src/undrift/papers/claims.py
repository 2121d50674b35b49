"""Claims: what is judged, and by which rule; fixed in the item's file before the run.

A test has two sides and a sign: `AdaBest > FedDyn`, `FedDyn < 1.5`, `AdaBest - FedDyn ~ 0`. A side
is a row, a difference of two rows, or a number. Sides are compared seed by seed, and the mean of
the differences has a 95 % interval by Student's t:

    >, <   agrees if the whole interval is on the claimed side of 0, disagrees if on the other
    ~      agrees if the whole interval is within the tolerance, disagrees if it is outside

and the verdict is "cannot tell" otherwise. A trial that diverged loses to one that did not; then
the verdict needs the same order on every seed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from undrift.config import UndriftError, unknown
from undrift.report.estimate import LEAST_SEEDS, Estimate

AGREES, DISAGREES, UNCLEAR = "agrees", "disagrees", "cannot tell"
OTHER, NOT_RUN = "not comparable", "not run"

VERDICTS = (AGREES, DISAGREES, UNCLEAR, OTHER, NOT_RUN)

Scores = Mapping[int, float]
"""seed → value; NaN where the trial diverged"""


@dataclass(frozen=True)
class Verdict:
    """What became of a claim, and why."""

    word: str
    why: str = ""
    difference: Estimate | None = None


@dataclass(frozen=True)
class Side:
    """One side of a test: rows with their signs, or a number."""

    rows: tuple[tuple[str, int], ...] = ()
    number: float = 0.0

    @classmethod
    def of(cls, text: str, known: Collection[str]) -> Side:
        """From `AdaBest`, `A - B` or `1.5`."""
        try:
            return cls(number=float(text))
        except ValueError:
            pass
        names = [text] if text in known else re.split(r"\s+-\s+", text)
        for name in names:
            if name not in known:
                raise UndriftError(unknown("row", name, known))
        if len(names) > 2:
            raise UndriftError(f"{text}: give a row, or a difference of two")
        return cls(tuple(zip(names, (1, -1), strict=False)))

    def values(self, scores: Mapping[str, Scores]) -> Scores | None:
        """Seed → value; None if a row has no result yet; a number holds for all seeds."""
        if not self.rows:
            return {}
        if any(not scores.get(name) for name, _ in self.rows):
            return None
        seeds = set.intersection(*(set(scores[name]) for name, _ in self.rows))
        return {seed: sum(sign * scores[name][seed] for name, sign in self.rows) for seed in seeds}


@dataclass(frozen=True)
class Claim:
    """A test, the cells that it is for, and the measure that it is about.

    other  the cell of its right side, if that is not the same one
    text   the claim in words, if the test does not say it
    """

    test: str
    left: Side
    sign: str
    right: Side
    cells: str = ""
    measure: str = ""
    other: str = ""
    text: str = ""

    @classmethod
    def of(cls, given: Any, rows: Collection[str], measures: Collection[str]) -> Claim:
        """From a test, or a table with one."""
        given = given if isinstance(given, dict) else {"test": str(given)}
        known = ("test", "cells", "measure", "other", "text")
        for name in given:
            if name not in known:
                raise UndriftError(unknown("part of a claim", name, known))
        test = given.get("test", "")
        found = re.fullmatch(r"(.+?) ([<>~]) (.+)", test)
        if not found:
            raise UndriftError(f"{test!r} is not a test, such as AdaBest > FedDyn")
        if given.get("measure", next(iter(measures))) not in measures:
            raise UndriftError(unknown("measure", given["measure"], measures))
        left, right = (Side.of(found[place], rows) for place in (1, 3))
        return cls(left=left, sign=found[2], right=right, **given)

    @property
    def rows(self) -> set[str]:
        """The rows on both sides."""
        return {name for side in (self.left, self.right) for name, _ in side.rows}

    @property
    def title(self) -> str:
        return self.text or (f"{self.measure}: {self.test}" if self.measure else self.test)

    def judge(
        self,
        left: Mapping[str, Scores],
        right: Mapping[str, Scores],
        tolerance: float,
    ) -> Verdict:
        """The verdict, from the scores of the rows in the cells of both sides."""
        a, b = self.left.values(left), self.right.values(right)
        if a is None or b is None:
            return Verdict(NOT_RUN)
        seeds = sorted(set(a) & set(b)) if a and b else sorted(a or b)
        pairs = [(a.get(seed, self.left.number), b.get(seed, self.right.number)) for seed in seeds]
        if len(pairs) < LEAST_SEEDS:
            return Verdict(UNCLEAR, few(len(pairs)))
        if any(math.isnan(x) for pair in pairs for x in pair):
            return self._with_failures(pairs)
        gap = Estimate.of([x - y for x, y in pairs])
        assert gap is not None
        assert gap.interval is not None
        return Verdict(rule(gap.interval, self.sign, tolerance), difference=gap)

    def _with_failures(self, pairs: Sequence[tuple[float, float]]) -> Verdict:
        failed = [sum(math.isnan(pair[side]) for pair in pairs) for side in (0, 1)]
        names = self.test.split(f" {self.sign} ")
        sides = {n: [one for one, m in zip(names, failed, strict=True) if m == n] for n in failed}
        why = ", ".join(
            f"{' and '.join(some)} diverged on {n} of {len(pairs)} seeds"
            for n, some in sides.items()
            if n
        )
        order = {_order(x, y) for x, y in pairs}
        if self.sign == "~" or len(order) > 1 or order == {0}:
            return Verdict(UNCLEAR, why)
        return Verdict(AGREES if order == {1 if self.sign == ">" else -1} else DISAGREES, why)


def few(seeds: int) -> str:
    """That there are too few seeds."""
    return f"{seeds} of {LEAST_SEEDS} seeds that an interval needs"


def rule(interval: tuple[float, float], sign: str, tolerance: float) -> str:
    """The word for an interval of the difference of two sides."""
    low, high = interval
    if sign == "~":
        if -tolerance <= low and high <= tolerance:
            return AGREES
        return DISAGREES if low > tolerance or high < -tolerance else UNCLEAR
    if sign == "<":
        low, high = -high, -low
    return AGREES if low > 0 else DISAGREES if high < 0 else UNCLEAR


def judge_value(
    ours: Estimate | None, printed: tuple[float, float | None], seeds: int, tolerance: float
) -> Verdict:
    """Whether our value is the printed one, within the tolerance (Welch's interval)."""
    if ours is None:
        return Verdict(NOT_RUN)
    if ours.interval is None:
        return Verdict(UNCLEAR, few(ours.n))
    mean, sd = printed
    noise = math.hypot(ours.sd or 0.0, (sd or 0.0) * math.sqrt(ours.n / seeds))
    gap = Estimate(ours.mean - mean, noise, ours.n)
    assert gap.interval is not None
    return Verdict(rule(gap.interval, "~", tolerance), difference=gap)


def _order(x: float, y: float) -> int:
    if math.isnan(x) or math.isnan(y):
        return math.isnan(y) - math.isnan(x)
    return (x > y) - (x < y)
