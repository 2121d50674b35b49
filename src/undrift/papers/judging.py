"""Verdicts: an item's results beside the paper's values, and what became of each claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from undrift.experiment.experiment import Experiment
from undrift.papers import FOLDER, FULL
from undrift.papers.budget import Budget, Rates, cell_budget, data_facts, total
from undrift.papers.catalogue import ids, items
from undrift.papers.claims import (
    AGREES,
    DISAGREES,
    NOT_RUN,
    OTHER,
    VERDICTS,
    Claim,
    Scores,
    Verdict,
    judge_value,
)
from undrift.papers.cost_tables import Row as CostRow
from undrift.papers.cost_tables import table as cost_table
from undrift.papers.cost_tables import text as cost_text
from undrift.papers.item import Cell, Item, Row
from undrift.papers.layers import matches
from undrift.papers.measures import Measure
from undrift.papers.results import Result, current, read_results
from undrift.report.estimate import Estimate

CLAIMS, VALUES, COSTS = "claims", "values", "entries of cost tables"
ADDED = "claims in settings that we added"
COUNTED = {
    CLAIMS: "claim",
    VALUES: "value",
    COSTS: "entry of a cost table",
    ADDED: "claim in a setting that we added",
}
"""what is judged → one of it"""

ENOUGH = 0.98
"""share of the samples that results must have been trained and tested on to be comparable"""


@dataclass(frozen=True)
class RowOutcome:
    """Our results in a line of the paper's table.

    algorithm  the one that was chosen, if there were several
    scores     measure → seed → value in printed units; NaN where the trial diverged
    curves     of each seed, as in `Result`
    """

    row: Row
    algorithm: str
    scores: Mapping[str, Scores]
    curves: Sequence[Mapping[str, Sequence[float | None]]] = ()

    def estimate(self, name: str, measure: Measure) -> Estimate | None:
        """Mean of a measure over the seeds that did not diverge."""
        return Estimate.of(list(self.scores.get(name, {}).values()), measure.bounds)

    @property
    def failed(self) -> int:
        """Seeds that diverged."""
        return sum(map(math.isnan, next(iter(self.scores.values()), {}).values()))


@dataclass(frozen=True)
class CellOutcome:
    """A cell: our results at one scale."""

    cell: Cell
    scale: str
    rows: Mapping[str, RowOutcome]
    other: str
    """why values are not comparable with the printed ones; empty if they are"""
    done: frozenset[str]
    """trials that were run, at any scale"""
    full: Cell
    """the cell at full scale"""

    @cached_property
    def left(self) -> Budget:
        """What is still to be run at full scale."""
        return cell_budget(self.full, self.done)

    def hours(self, rates: Rates) -> float | None:
        """Time that what is left takes here, at the measured rates."""
        return self.left.hours(rates.of_model(self.full.rows[0].experiment.model))

    @property
    def run(self) -> bool:
        """Whether there is any result."""
        return any(scores for row in self.rows.values() for scores in row.scores.values())


@dataclass(frozen=True)
class Judged:
    """A claim or a printed value, where it stands and its verdict."""

    what: str
    cell: CellOutcome | None
    verdict: Verdict
    claim: Claim | None = None

    @property
    def ours(self) -> bool:
        """Whether it is about a setting or a row that the paper does not have."""
        if self.cell is None:
            return False
        cell, labels = self.cell.cell, self.claim.rows if self.claim else ()
        return cell.ours or any(row.ours for row in cell.rows if row.label in labels)


@dataclass
class Outcome:
    """All that is known about an item."""

    item: Item
    cells: Mapping[str, Sequence[CellOutcome]] = field(default_factory=dict)
    """cell → its results at each scale that was run, the largest first; at least one"""
    costs: Sequence[tuple[str, str, str, str, bool]] = ()
    """of a cost table: line, column, printed, regenerated, and whether they agree"""

    @cached_property
    def claims(self) -> list[Judged]:
        """The verdict of each claim in each of its cells."""
        return [
            max((self._judged(claim, id, cell) for cell in scales), key=_weight)
            for claim in self.item.claims
            for id, scales in self.cells.items()
            if matches(id, claim.cells) and claim.rows <= {row.label for row in scales[0].cell.rows}
        ]

    def _judged(self, claim: Claim, id: str, here: CellOutcome) -> Judged:
        """A claim at one scale."""
        others = self.cells[claim.other or id]
        there = next((one for one in others if one.scale == here.scale), None)
        left, right = (_scores(one, claim.measure or self.item.main[0]) for one in (here, there))
        verdict = claim.judge(left, right, self.item.tolerance)
        return Judged(claim.title, here, verdict, claim)

    @cached_property
    def values(self) -> list[Judged]:
        """The verdict of each printed value."""
        if self.item.kind == "cost":
            return [
                Judged(f"{line}: {column}", None, Verdict(AGREES if same else DISAGREES))
                for line, column, _, _, same in self.costs
            ]
        found = []
        for id, scales in self.cells.items():
            for label, printed in self.item.printed.get(id, {}).items():
                run = [one for one in scales if any(one.rows[label].scores.values())]
                found.append(self._compared(label, printed, (*run, scales[0])[0]))
        return found

    def _compared(
        self, label: str, printed: tuple[float, float | None], here: CellOutcome
    ) -> Judged:
        """A printed value at one scale."""
        row = here.rows[label]
        ours = row.estimate(*self.item.main)
        verdict = judge_value(ours, printed, self.item.seeds, self.item.tolerance)
        if ours is None and row.failed:
            verdict = Verdict(DISAGREES, f"diverged on all {row.failed} seeds")
        if here.other and verdict.word != NOT_RUN:
            verdict = Verdict(OTHER, here.other, verdict.difference)
        return Judged(label, here, verdict)

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """What is judged → its number by verdict."""
        kinds = {
            CLAIMS: [one for one in self.claims if not one.ours],
            COSTS if self.item.kind == "cost" else VALUES: [
                one for one in self.values if not one.ours
            ],
            ADDED: [one for one in self.claims if one.ours],
        }
        return {
            kind: Counter(one.verdict.word for one in judged)
            for kind, judged in kinds.items()
            if judged
        }

    @property
    def left(self) -> Budget:
        return total(one.left for one, *_ in self.cells.values())

    def hours(self, rates: Rates) -> float | None:
        """The same of all cells."""
        spent = [one.hours(rates) for one, *_ in self.cells.values() if one.left.trials]
        known = [one for one in spent if one is not None]
        return sum(known) if len(known) == len(spent) else None


def _weight(judged: Judged) -> int:
    """How much a verdict says: more if there is an interval, least if a row was not run."""
    verdict = judged.verdict
    return (verdict.word != NOT_RUN) + (verdict.difference is not None)


def _scores(cell: CellOutcome | None, measure: str) -> dict[str, Scores]:
    rows = cell.rows if cell else {}
    return {label: row.scores.get(measure, {}) for label, row in rows.items()}


@dataclass
class Book:
    """The items that were asked for, with their results."""

    outcomes: list[Outcome]
    rates: Rates

    @classmethod
    def read(cls, pattern: str = "*", folders: Iterable[Path] = (FOLDER,)) -> Book:
        """From the results in some folders; those of later ones replace those of earlier ones.

        Rates are from the results of all items.
        """
        wanted = ids(pattern)
        known = [(item, kept_results(item, folders)) for item in items()]
        rates = Rates.of((item, one) for item, results in known for one in results)
        return cls([outcome(*one) for one in known if one[0].id in wanted], rates)

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """The same of all items."""
        both: dict[str, Counter[str]] = {kind: Counter() for kind in COUNTED}
        for one in self.outcomes:
            for kind, count in one.counts.items():
                both[kind] += count
        return {kind: count for kind, count in both.items() if count}


def kept_results(item: Item, folders: Iterable[Path]) -> list[Result]:
    """The results of an item in some folders."""
    results: dict[Any, Result] = {}
    for folder in folders:
        results |= {one.key: one for one in current(item, read_results(item, folder))}
    return list(results.values())


def outcome(item: Item, results: Sequence[Result]) -> Outcome:
    """An item with its results judged."""
    if item.kind == "cost":
        return Outcome(item, costs=list(_costs(item)))
    if item.kind != "experiment":
        return Outcome(item)
    cells: dict[str, list[CellOutcome]] = {}
    for cell in item.cells():
        own = [one for one in results if one.cell == cell.id]
        run = [name for name in (FULL, *item.scales) if any(one.scale == name for one in own)]
        done = frozenset(one.trial for one in own)
        for scale in run or [FULL]:
            here = cell if scale == FULL else item.cells(scale, pattern=cell.id)[0]
            some = [one for one in own if one.scale == scale]
            rows = {row.label: _row(item, row, some) for row in here.rows}
            other = _other(here, some, scale)
            cells.setdefault(cell.id, []).append(CellOutcome(here, scale, rows, other, done, cell))
    return Outcome(item, cells)


def _row(item: Item, row: Row, results: Sequence[Result]) -> RowOutcome:
    """A row's results, with the algorithm that its measure `by` chooses."""
    by_name: dict[str, list[Result]] = {}
    for one in results:
        if one.row == row.label:
            by_name.setdefault(one.algorithm, []).append(one)
    name = next(iter(by_name), repr(row.algorithms[0]))
    if len(row.algorithms) > 1:
        marks = {
            name: Estimate.of([one.values.get(row.by, math.nan) for one in some])
            for name, some in by_name.items()
        }
        ranked = {name: mark.mean for name, mark in marks.items() if mark}
        name = max(ranked, key=lambda one: ranked[one], default=name)
    scores = {
        key: {
            one.seed: one.values.get(key, math.nan) * measure.factor
            for one in by_name.get(name, ())
            if key in one.values or one.failure
        }
        for key, measure in item.measures.items()
    }
    curves = [one.curves for one in by_name.get(name, ()) if one.curves]
    return RowOutcome(row, name, scores, curves)


def _other(cell: Cell, results: Sequence[Result], scale: str) -> str:
    """Why results are not comparable with the paper's; empty if they are."""
    if scale != FULL:
        return f"run at the scale {scale}"
    for one in results:
        train, test = expected(cell.rows[0].experiment)
        if one.samples[0] < ENOUGH * train:
            return f"trained on {one.samples[0]:,} of {train:,} samples"
        if one.samples[1] < ENOUGH * test:
            return f"tested on {one.samples[1]:,} of {test:,} samples"
    return ""


def expected(experiment: Experiment) -> tuple[int, int]:
    """Samples of the training clients and of the test data, if the data are complete."""
    facts = data_facts()[repr(experiment.data)]
    clients = getattr(experiment.partition, "clients", None)
    share = (clients - experiment.validation) / clients if clients else 1.0
    return round(facts.train * share * (1 - experiment.client_test)), facts.test


def _costs(item: Item) -> Iterable[tuple[str, str, str, str, bool]]:
    """Line, column, printed and regenerated text of each printed cost, and whether they agree."""
    lines = {_line(row): row for row in cost_table(item.table).rows}
    for name, values in item.printed.items():
        for column, printed in values.items():
            ours = lines[name][column]
            text = cost_text(ours)
            same = printed == ours if isinstance(printed, str) else printed == float(text)
            yield name, column, cost_text(printed), text, same


def _line(row: CostRow) -> str:
    """The name of a line: its first texts up to the algorithm."""
    names = [str(row[key]) for key in ("task", "algorithm", "optimiser") if key in row]
    return ", ".join(names)


def summary(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The verdicts in a line for each kind: "9 claims: 4 agree, 1 disagrees, 4 not run"."""
    lines = []
    for kind, count in counts.items():
        words = [_counted(count[word], word) for word in VERDICTS if count.get(word)]
        all = sum(count.values())
        lines.append(f"{all} {kind if all > 1 else COUNTED[kind]}: {', '.join(words)}")
    return lines


def _counted(number: int, verdict: str) -> str:
    """1 agrees, 2 agree."""
    return f"{number} {verdict if number == 1 else verdict.removesuffix('s')}"
