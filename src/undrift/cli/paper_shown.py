"""What `undrift paper show` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from undrift.cli.tables import show_table
from undrift.papers import layers
from undrift.papers.budget import cell_budget
from undrift.papers.claims import Claim
from undrift.papers.item import KINDS, Item
from undrift.papers.judging import Book, Outcome, summary
from undrift.papers.tables import LEGEND, grids, rerun, time_text


def show_item(item: Item, pattern: str, scale: str, folders: Sequence[Path]) -> None:
    """An item on the terminal, with the cells that fit a pattern."""
    console = Console(highlight=False, markup=False)
    book = Book.read(item.id, folders)
    (outcome,) = book.outcomes
    outcome.claims = [  # before cells go to which others are compared
        one for one in outcome.claims if one.cell and layers.matches(one.cell.cell.id, pattern)
    ]
    outcome.cells = {id: cell for id, cell in outcome.cells.items() if layers.matches(id, pattern)}
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
        lines = [(name, *map(str, entries)) for name, entries in grid.lines]
        show_table(console, dict(zip(grid.head, zip(*lines, strict=True), strict=True)))
        console.print()
    for line in summary(outcome.counts):
        console.print(line)
    if item.kind == "experiment":
        console.print(f"\n{LEGEND}.", style="dim")
        console.print(rerun(item, pattern, scale), soft_wrap=True)


def _criteria(console: Console, item: Item) -> None:
    name, measure = item.main
    console.print(f"\nmeasured: {name} = {measure!r}; the paper has {item.seeds} seeds")
    if item.printed:
        console.print(f"a printed value agrees within {item.tolerance:g} {measure.unit}".rstrip())
    for claim in item.claims:
        assert isinstance(claim, Claim)
        where = f"   [{claim.cells}]" if claim.cells else ""
        words = f" ({claim.text})" if claim.text else ""
        about = f"{claim.measure}: " if claim.measure else ""
        console.print(f"claim: {about}{claim.test}{words}{where}")
    for name, changes in item.scales.items():
        console.print(f"scale {name}: {', '.join(_settings(changes))}")


def _settings(changes: layers.Table, before: str = "") -> Iterator[str]:
    """The settings that a scale changes; its note says what they do not."""
    for name, value in changes.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{before}{name}.")
        elif name != "note":
            yield f"{before}{name} = {value}"


def _budgets(console: Console, outcome: Outcome, book: Book, pattern: str, scale: str) -> None:
    heads = ("cell", "rows", "trials", "client steps", "operations", "time here", "done")
    lines, unknown = [], dict[str, None]()
    for cell in outcome.item.cells(scale, pattern=pattern):
        budget, left = cell_budget(cell), cell_budget(cell, outcome.cells[cell.id][0].done)
        rate = book.rates.of_model(cell.rows[0].experiment.model)
        flops = "?" if budget.flops is None else f"{budget.flops:.2g}"
        done = budget.trials - left.trials
        facts = (len(cell.rows), budget.trials, f"{budget.steps:,.0f}", flops)
        id = cell.id.replace(",", ", ")
        lines.append((id, *map(str, facts), time_text(budget.hours(rate)), str(done or "")))
        unknown |= {budget.why: None} if budget.why else {}
    console.print()
    show_table(console, dict(zip(heads, zip(*lines, strict=True), strict=True)))
    console.print()
    for why in unknown:
        console.print(f"time unknown: {why}", style="dim")
