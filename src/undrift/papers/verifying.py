"""Verifying: committed results are computed again and compared bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from undrift.arithmetic import change
from undrift.papers.item import Item
from undrift.papers.results import Result, Runs, collect, current, read_machines, read_results
from undrift.runs.runner import run


@dataclass(frozen=True)
class Comparison:
    """A result, the same trial run here, and what follows.

    worst   the measure that differs most, in units of the tolerance
    reason  what is different here that affects rounding; empty if nothing is
    """

    item: Item
    old: Result
    new: Result
    worst: float
    reason: str

    @property
    def same(self) -> bool:
        """Whether all bits are the same."""
        return self.old.bits == self.new.bits

    @property
    def sound(self) -> bool:
        """Whether the result stands: the same bits, or close where rounding differs."""
        return self.same or (bool(self.reason) and self.worst <= 1)

    @property
    def facts(self) -> dict[str, Any]:
        """All this as JSON has it."""
        names = ("cell", "scale", "row", "algorithm", "seed")
        place = {"item": self.item.id} | {name: getattr(self.old, name) for name in names}
        told = ("same", "sound", "worst", "reason")
        return place | {name: getattr(self, name) for name in told}

    def __str__(self) -> str:
        place = f"{self.item.id} {self.old.cell}, {self.old.algorithm}, seed {self.old.seed}"
        if self.same:
            return f"{place}: the same bits"
        if not self.reason:
            return f"{place}: other bits than the kept ones, though nothing here rounds otherwise"
        how = "within the tolerance" if self.sound else "beyond the tolerance"
        return f"{place}: {how}, {self.worst:.2g} of it; {self.reason}"


def shortest(items: Sequence[Item], folder: Path, number: int) -> list[tuple[Item, Result]]:
    """The results that took the least time, of as many items as there are."""
    found: list[tuple[Item, Result]] = []
    for item in items:
        if item.kind == "experiment":
            found += [
                (item, one) for one in current(item, read_results(item, folder)) if not one.failure
            ]
    found.sort(key=lambda pair: (pair[1].seconds, pair[0].id, pair[1].key))
    return found[:number]


def verify(item: Item, old: Result, folder: Path, scratch: Path, **session: Any) -> Comparison:
    """Run the trial of a result in a scratch folder, and compare."""
    (cell,) = [one for one in item.cells(old.scale, old.seed + 1) if one.id == old.cell]
    (row,) = [one for one in cell.rows if one.label == old.row]
    (made,) = [one for one in row.algorithms if repr(one) == old.algorithm]
    alone = replace(row.experiment, algorithms=(made,), seeds=(old.seed,))
    for _ in run(alone, scratch / alone.hash, **session):
        pass
    only = replace(cell, rows=(replace(row, experiment=alone),))
    (new,), machines = collect(item, [only], old.scale, Runs(scratch))
    before = read_machines(item, folder).get(old.machine, {})
    reason = change(before, machines[new.machine]) or ""
    gaps = [
        abs(new.values[name] - value) * item.measures[name].factor / item.tolerance
        for name, value in old.values.items()
        if name in new.values and name in item.measures
    ]
    told = reason.removeprefix("this run began with ").split(":")[0]
    return Comparison(item, old, new, max(gaps, default=0.0), told)
