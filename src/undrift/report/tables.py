"""Tables: the summary as Markdown, as CSV and for the terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from undrift.report.read import Run
from undrift.report.summary import Estimate, Row
from undrift.report.units import brief, common_prefix, percent

if TYPE_CHECKING:
    from rich.table import Table

BEST = "★"
NONE = "–"
ALGORITHM, FINAL, NOTES = "Algorithm", "Final accuracy (%)", "Notes"

_ESTIMATES = (
    *("final", "behind", "tail", "peak"),
    *("rounds_to", "bytes_to", "flops_to", "bytes", "flops"),
)


def table_columns(run: Run, rows: Sequence[Row], compact: bool = False) -> dict[str, list[str]]:
    """Heading → cells of the table that people read; `compact` leaves out the finer columns."""
    columns = {
        ALGORITHM: [f"{row.arm.label} {BEST}" if row.leads else row.arm.label for row in rows],
        FINAL: [_accuracy(row.final) for row in rows],
    }
    if not compact:
        columns["Behind the best (points)"] = [
            NONE if row.leads else _accuracy(row.behind) for row in rows
        ]
        columns["Last tenth of rounds (%)"] = [_accuracy(row.tail) for row in rows]
    columns["Best accuracy (%)"] = [_accuracy(row.peak) for row in rows]
    columns |= _totals(rows) if run.target is None else _costs(rows, percent(run.target))
    if not compact and any(notes(row) for row in rows):
        columns[NOTES] = [notes(row) for row in rows]
    return columns


def notes(row: Row) -> str:
    """What the numbers of a row leave out."""
    said = [
        f"{count}/{row.seeds} seeds {what}"
        for count, what in ((row.diverged, "diverged"), (row.unfinished, "unfinished"))
        if count
    ]
    return ", ".join(said)


def footnote(run: Run) -> str:
    """How to read the table, in a sentence or two."""
    spread = "mean ± sd over seeds" if len(run.seeds) > 1 else "one seed, so without a spread"
    text = f"Accuracy on the test set, {spread}; {BEST} marks the best of those that finished."
    if run.target is not None:
        text += (
            f" Costs are those of all clients up to the first evaluated round with at least"
            f" {percent(run.target)} %, averaged over the seeds that got there."
        )
    return text


def markdown_table(run: Run, rows: Sequence[Row]) -> str:
    """The table in Markdown, the best row in bold."""
    columns = table_columns(run, rows)
    lines = ["| " + " | ".join(columns) + " |"]
    lines.append("|" + "|".join(":--" if _is_text(head) else "--:" for head in columns) + "|")
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        escaped = [_escape(cell) for cell in cells]
        if row.leads:
            escaped[:2] = [f"**{cell}**" for cell in escaped[:2]]
        lines.append("| " + " | ".join(escaped) + " |")
    return "\n".join([*lines, "", _escape(footnote(run)), ""])


def rich_table(run: Run, rows: Sequence[Row]) -> Table:
    """The table for a terminal: narrow, with the notes below it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    columns = table_columns(run, rows, compact=True)
    said = "".join(f"\n{row.arm.label}: {notes(row)}." for row in rows if notes(row))
    table = Table(
        box=SIMPLE_HEAD, caption=Text(footnote(run) + said), caption_justify="left", pad_edge=False
    )
    for head in columns:
        tall = re.sub(r" (?=accuracy|to |\()", "\n", head)
        if _is_text(head):
            table.add_column(tall, overflow="fold")
        else:
            table.add_column(tall, justify="right", no_wrap=True)
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*map(Text, cells), style="bold green" if row.leads else None)
    return table


def csv_table(run: Run, rows: Sequence[Row]) -> str:
    """All numbers in full: accuracies as shares, traffic in bytes, compute in operations."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = ["algorithm", "label", "seeds", "diverged", "unfinished", "leads", "target", "reached"]
    heads += [f"{field}_{part}" for field in _ESTIMATES for part in ("mean", "sd")]
    writer.writerow(heads)
    for row in rows:
        estimates: list[Estimate | None] = [getattr(row, field) for field in _ESTIMATES]
        numbers = [n for e in estimates for n in ((e.mean, e.sd) if e else (None, None))]
        shown = ["" if number is None else f"{number:.10g}" for number in numbers]
        start = [row.arm.name, row.arm.label, row.seeds, row.diverged, row.unfinished]
        writer.writerow([*start, int(row.leads), run.target, row.reached, *shown])
    return text.getvalue()


def _costs(rows: Sequence[Row], goal: str) -> dict[str, list[str]]:
    def cells(costs: list[Estimate | None], unit: float) -> list[str]:
        return [cell(row, cost, unit) for row, cost in zip(rows, costs, strict=True)]

    def cell(row: Row, cost: Estimate | None, unit: float) -> str:
        if cost is None:
            return "never"
        number = brief(cost.mean / unit) if unit else f"{cost.mean:.0f}"
        return number if row.reached == row.seeds else f"{number} ({row.reached}/{row.seeds})"

    traffic, compute = [row.bytes_to for row in rows], [row.flops_to for row in rows]
    (byte, byte_name), (flop, flop_name) = _unit(traffic), _unit(compute)
    return {
        f"Rounds to {goal} %": cells([row.rounds_to for row in rows], 0),
        f"Traffic to {goal} % ({byte_name}B)": cells(traffic, byte),
        f"Compute to {goal} % ({flop_name}FLOP)": cells(compute, flop),
    }


def _totals(rows: Sequence[Row]) -> dict[str, list[str]]:
    traffic, compute = [row.bytes for row in rows], [row.flops for row in rows]
    (byte, byte_name), (flop, flop_name) = _unit(traffic), _unit(compute)
    return {
        f"Traffic ({byte_name}B)": [brief(cost.mean / byte) if cost else NONE for cost in traffic],
        f"Compute ({flop_name}FLOP)": [brief(c.mean / flop) if c else NONE for c in compute],
    }


def _unit(costs: Sequence[Estimate | None]) -> tuple[float, str]:
    return common_prefix(cost.mean for cost in costs if cost is not None)


def _accuracy(estimate: Estimate | None) -> str:
    if estimate is None:
        return NONE
    spread = "" if estimate.sd is None else f" ± {100 * estimate.sd:.2f}"
    return f"{100 * estimate.mean:.2f}{spread}"


def _is_text(head: str) -> bool:
    return head in (ALGORITHM, NOTES)


def _escape(text: str) -> str:
    """Markdown that shows the text as it is, on one line."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]~])", r"\\\1", re.sub(r"\s+", " ", safe))
