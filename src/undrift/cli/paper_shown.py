"""What `undrift paper show` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from undrift.papers.budget import cell_budget
from undrift.papers.claims import Claim
from undrift.papers.item import KINDS, Item
from undrift.papers.judging import Book, Outcome, summary
from undrift.papers.layers import matches
from undrift.papers.tables import Grid, grids, rerun, time_text


def show_item(item: Item, pattern: str, scale: str, folders: Sequence[Path]) -> None:
    """An item on the terminal."""
    console = Console(highlight=False, markup=False)
    book = Book.read(item.id, folders)
    (outcome,) = book.outcomes
    outcome.cells = {id: cell for id, cell in outcome.cells.items() if matches(id, pattern)}
    console.print(Text(f"{item.id}: {item.source}", style="bold"))
    console.print(item.claim)
    held = f": {item.held}" if item.held else ""
    console.print(f"\n{KINDS[item.kind]}{held}", style="dim")
    for note in item.notes:
        console.print(f"- {note}", style="dim")
    if item.kind == "experiment":
        _criteria(console, item)
        _budgets(console, outcome, book, pattern, scale)
    for grid in grids(outcome, book.rates):
        _grid(console, grid)
    for line in summary(outcome.counts):
        console.print(line)
    if item.kind == "experiment":
        console.print(rerun(item), soft_wrap=True)


def _criteria(console: Console, item: Item) -> None:
    name, measure = item.main
    console.print(f"\nmeasured: {name} = {measure!r}; the paper has {item.seeds} seeds")
    console.print(f"a printed value agrees within {item.tolerance:g} {measure.unit}".rstrip())
    for claim in item.claims:
        assert isinstance(claim, Claim)
        where = f"   [{claim.cells}]" if claim.cells else ""
        words = f" ({claim.text})" if claim.text else ""
        about = f"{claim.measure}: " if claim.measure else ""
        console.print(f"claim: {about}{claim.test}{words}{where}")


def _budgets(console: Console, outcome: Outcome, book: Book, pattern: str, scale: str) -> None:
    table, unknown = Table(box=SIMPLE_HEAD, pad_edge=False), dict[str, None]()
    for head in ("cell", "rows", "trials", "client steps", "operations", "time here", "done"):
        table.add_column(head, justify="left" if head == "cell" else "right", overflow="fold")
    for cell in outcome.item.cells(scale, pattern=pattern):
        budget, left = cell_budget(cell), cell_budget(cell, outcome.cells[cell.id][0].done)
        rate = book.rates.of_model(cell.rows[0].experiment.model)
        flops = "?" if budget.flops is None else f"{budget.flops:.2g}"
        done = budget.trials - left.trials
        facts = (len(cell.rows), budget.trials, f"{budget.steps:,.0f}", flops)
        table.add_row(cell.id, *map(str, facts), time_text(budget.hours(rate)), str(done or ""))
        unknown |= {budget.why: None} if budget.why else {}
    console.print(table)
    for why in unknown:
        console.print(f"time unknown: {why}", style="dim")


def _grid(console: Console, grid: Grid) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in grid.head:
        table.add_column(Text(head), overflow="fold")
    for name, entries in grid.lines:
        table.add_row(Text(name), *(Text(str(entry)) for entry in entries))
    console.print(table)
