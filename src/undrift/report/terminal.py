"""Tables of the summary for a terminal, with as many columns as fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from undrift.report.notes import footnote, notes, seed_note
from undrift.report.read import Run
from undrift.report.summary import SummaryRow
from undrift.report.tables import ALGORITHM, seed_columns, table_columns, worth_showing
from undrift.report.text import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

COMPACT = (
    "final",
    "balanced",
    "best",
    "clients",
    "personal",
    "seeds",
    "rounds",
    "traffic",
    "compute",
)
"""columns of a terminal, if there is room for them"""

KEPT = ("final", "balanced", "clients", "personal", "rounds", "seeds", "traffic", "compute", "best")
"""the same, those that matter most first"""


@dataclass(frozen=True)
class TerminalTable:
    """A table that leaves out columns rather than cutting names or numbers.

    labels   the names of the rows, which wrap between their settings only
    leads    whether a row is the best one
    columns  column → heading and cells
    kept     columns in the order in which they get a place
    note     text below it, as wide as the terminal
    more     what to do to see columns that are left out
    """

    labels: Sequence[str]
    leads: Sequence[bool]
    columns: Mapping[str, tuple[str, Sequence[str]]]
    kept: Sequence[str]
    note: str
    more: str = (
        "The page of `undrift report` has all columns; its option --columns chooses those shown"
        " here."
    )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.cells import cell_len
        from rich.measure import Measurement
        from rich.text import Text

        free = options.update(width=10**6)

        def others(shown: Sequence[str]) -> int:
            """The width of all but the names."""
            return Measurement.get(console, free, self._table(shown, 1)).maximum - 1

        parts = [part for label in self.labels for part in wrapped(label, 0)]
        least = max(map(cell_len, [ALGORITHM, *parts]))
        shown: list[str] = []
        for name in self.kept:  # the first one in any case
            if not shown or others([*shown, name]) + least <= options.max_width:
                shown.append(name)
        shown = [name for name in self.columns if name in shown]
        yield self._table(shown, max(options.max_width - others(shown), 1))
        notes = [self.note] if self.note else []
        if missing := [name for name in self.columns if name not in shown]:
            notes.append(f"Not shown at this width: {', '.join(missing)}. {self.more}")
        if notes:
            yield Text("\n".join(notes), style="table.caption", overflow="fold")

    def _table(self, shown: Sequence[str], width: int) -> Table:
        """The table with these columns, and names of at most this width."""
        from rich.box import SIMPLE_HEAD
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        names = ["\n".join(wrapped(label, width)) for label in self.labels]
        table.add_column(ALGORITHM, overflow="fold", max_width=width)
        for head, cells in (self.columns[name] for name in shown):
            tall = re.sub(r" (?=accuracy|RMSE|loss|of |to |\(|95)", "\n", head)
            wide = max(map(cell_len, [*tall.split("\n"), *cells]))
            table.add_column(tall, justify="right", no_wrap=True, min_width=wide)
        rows = zip(names, *(self.columns[name][1] for name in shown), strict=True)
        for leads, cells in zip(self.leads, rows, strict=True):
            table.add_row(*map(Text, cells), style="bold green" if leads else None)
        return table


def wrapped(label: str, width: int) -> list[str]:
    """The lines of a label, broken after commas; a part that is too wide stays whole."""
    from rich.cells import cell_len

    first, *parts = re.split(r"(?<=,) ", label)
    lines = [first]
    for part in parts:
        if cell_len(longer := f"{lines[-1]} {part}") <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def rich_table(
    run: Run, rows: Sequence[SummaryRow], names: Sequence[str] | None = None
) -> TerminalTable:
    """The main table for a terminal, with the notes below it."""
    noted = {printable(row.arm.label): notes(row) for row in rows if notes(row)}
    said = "".join(f"\n{label}: {note}." for label, note in noted.items())
    if names and "notes" in names and not noted:
        said = "\nNotes: none."
    chosen = names or [name for name in COMPACT if worth_showing(name, run, rows)]
    columns = {
        name: list(table_columns(run, rows, [name]).items())[1]
        for name in chosen
        if name != "notes"
    }
    kept = list(columns) if names else [name for name in KEPT if name in columns]
    labels = next(iter(table_columns(run, rows, []).values()))
    return _terminal(labels, rows, columns, kept, footnote(run, rows) + said)


def rich_seed_table(rows: Sequence[SummaryRow]) -> TerminalTable:
    """The table of intervals and paired differences for a terminal."""
    (_, labels), *others = seed_columns(rows).items()
    columns = {head.lower(): (head, cells) for head, cells in others}
    return _terminal(labels, rows, columns, list(columns), seed_note(rows))


def _terminal(
    labels: Sequence[str],
    rows: Sequence[SummaryRow],
    columns: Mapping[str, tuple[str, Sequence[str]]],
    kept: Sequence[str],
    note: str,
) -> TerminalTable:
    safe = [printable(label) for label in labels]
    note = "\n".join(map(printable, note.split("\n")))
    return TerminalTable(safe, [row.leads for row in rows], columns, kept, note)
