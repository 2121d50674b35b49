"""Tables of the summary: Markdown, LaTeX, CSV and terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from undrift.report.estimate import Estimate
from undrift.report.notes import BEST, footnote, has_intervals, joined, notes, seed_note
from undrift.report.read import Run
from undrift.report.summary import SummaryRow, finals, first_hit, tail
from undrift.report.text import printable
from undrift.report.units import brief, common_prefix, percent

if TYPE_CHECKING:
    from rich.table import Table

NONE = "–"
ALGORITHM, NOTES = "Algorithm", "Notes"

_ESTIMATES = (
    *("final", "behind", "difference", "tail", "peak"),
    *("rounds_to", "bytes_to", "flops_to", "bytes", "flops", "latest"),
)


def table_columns(
    run: Run, rows: Sequence[SummaryRow], compact: bool = False
) -> dict[str, list[str]]:
    """Heading → cells of the main table; `compact` has fewer columns, for terminals."""
    name = joined(row.score.heading for row in rows)
    columns = {
        ALGORITHM: [f"{row.arm.label} {BEST}" if row.leads else row.arm.label for row in rows],
        f"Final {name}": [_result(row, row.final) for row in rows],
    }
    if not compact:
        columns[f"Behind the best{_in(row.score.gap for row in rows)}"] = [
            NONE if row.leads else _result(row, row.behind) for row in rows
        ]
        columns[f"Last tenth of rounds{_in(row.score.unit for row in rows)}"] = [
            _result(row, row.tail) for row in rows
        ]
    columns[f"Best {name}"] = [_result(row, row.peak) for row in rows]
    columns |= _totals(rows) if run.target is None else _costs(rows, percent(run.target))
    if not compact and any(notes(row) for row in rows):
        columns[NOTES] = [notes(row) for row in rows]
    return columns


def seed_columns(rows: Sequence[SummaryRow]) -> dict[str, list[str]]:
    """Heading → cells of the table of intervals and differences; empty without either."""
    if not any(row.baseline for row in rows) and not has_intervals(rows):
        return {}
    name, gap = joined(row.score.heading for row in rows), _in(row.score.gap for row in rows)
    interval = ", 95 % interval" if has_intervals(rows) else ""
    columns = {
        ALGORITHM: [row.arm.label for row in rows],
        f"Final {name}{interval}": [_interval(row, row.final) for row in rows],
    }
    if any(row.baseline for row in rows):
        columns[f"Difference to the baseline{gap}{interval}"] = [
            "baseline" if row.arm is row.baseline else _interval(row, row.difference, "+")
            for row in rows
        ]
        columns["Wins, losses"] = [
            f"{row.wins}, {row.losses}" if row.gaps and row.arm is not row.baseline else NONE
            for row in rows
        ]
    return columns


def markdown_table(run: Run, rows: Sequence[SummaryRow]) -> str:
    """The tables in Markdown, the best row in bold."""

    def table(columns: dict[str, list[str]], note: str) -> list[str]:
        lines = ["| " + " | ".join(columns) + " |"]
        lines.append("|" + "|".join(":--" if _is_text(head) else "--:" for head in columns) + "|")
        for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
            escaped = [escape_markdown(cell) for cell in cells]
            if row.leads:
                escaped[:2] = [f"**{cell}**" for cell in escaped[:2]]
            lines.append("| " + " | ".join(escaped) + " |")
        return [*lines, "", escape_markdown(note), ""]

    return "\n".join(line for columns, note in _both(run, rows) for line in table(columns, note))


def latex_table(run: Run, rows: Sequence[SummaryRow]) -> str:
    """The tables in LaTeX with booktabs, the best row in bold."""

    def table(columns: dict[str, list[str]], note: str) -> list[str]:
        kinds = "".join("l" if _is_text(head) else "r" for head in columns)
        lines = [f"% {escape_latex(note)}", rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
        lines += [" & ".join(map(escape_latex, columns)) + r" \\", r"\midrule"]
        for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
            escaped = [escape_latex(cell) for cell in cells]
            if row.leads:
                escaped[:2] = [rf"\textbf{{{cell}}}" for cell in escaped[:2]]
            lines.append(" & ".join(escaped) + r" \\")
        return [*lines, r"\bottomrule", r"\end{tabular}", ""]

    lines = [line for columns, note in _both(run, rows) for line in table(columns, note)]
    return "\n".join([r"% needs \usepackage{booktabs}", *lines])


def rich_table(run: Run, rows: Sequence[SummaryRow]) -> Table:
    """The main table for a terminal, with the notes below it."""
    noted = {printable(row.arm.label): notes(row) for row in rows if notes(row)}
    said = "".join(f"\n{label}: {note}." for label, note in noted.items())
    return _rich(table_columns(run, rows, compact=True), rows, footnote(run, rows) + said)


def rich_seed_table(rows: Sequence[SummaryRow]) -> Table:
    """The table of intervals and paired differences for a terminal."""
    return _rich(seed_columns(rows), rows, seed_note(rows))


def _rich(columns: dict[str, list[str]], rows: Sequence[SummaryRow], note: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, caption=Text(note), caption_justify="left", pad_edge=False)
    for head in columns:
        tall = re.sub(r" (?=accuracy|RMSE|loss|to |\(|95)", "\n", head)
        if _is_text(head):
            table.add_column(tall, overflow="fold", min_width=len(head))
        else:
            table.add_column(tall, justify="right", no_wrap=True)
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        table.add_row(
            *(Text(printable(cell)) for cell in cells), style="bold green" if row.leads else None
        )
    return table


def csv_table(run: Run, rows: Sequence[SummaryRow]) -> str:
    """All numbers to 10 digits: accuracies as shares, traffic in bytes, compute in operations."""
    heads = ["run", "algorithm", "label", "seeds", "diverged", "unfinished", "leads"]
    heads += ["target", "reached", "baseline", "wins", "losses"]
    heads += ["metric", "rounds", "done", "latest_round"]
    heads += [f"{name}_{part}" for name in _ESTIMATES for part in ("mean", "sd", "low", "high")]
    lines = []
    for row in rows:
        line = [row.arm.run, row.arm.name, row.arm.label, row.seeds, row.diverged, row.unfinished]
        line += [int(row.leads), run.target, row.reached]
        line += [row.baseline.label, row.wins, row.losses] if row.baseline else [None] * 3
        line += [row.score.name, row.arm.rounds, row.done, row.latest_round]
        for name in _ESTIMATES:
            one: Estimate | None = getattr(row, name)
            line += [None] * 4 if one is None else [one.mean, one.sd, *(one.interval or [None] * 2)]
        lines.append(line)
    return _csv(heads, lines)


def seeds_csv(run: Run, rows: Sequence[SummaryRow]) -> str:
    """One line per algorithm and seed: the values behind the means, and the failure if any."""
    heads = ["run", "algorithm", "label", "seed", "rounds", "final", "tail", "peak", "difference"]
    lines = []
    for row in rows:
        done, score = finals(row.arm), row.score
        for seed, curve in row.arm.curves.items():
            line = [row.arm.run, row.arm.name, row.arm.label, seed, int(curve.rounds[-1])]
            line += [done.get(seed), tail(score, curve) if seed in done else None]
            line += [score.peak(curve)]
            hit = first_hit(curve, run.target)
            costs = [None if hit is None else curve[x][hit] for x in ("round", "bytes", "flops")]
            failure = row.arm.failures.get(seed)
            lines.append([*line, row.gaps.get(seed), *costs, failure.reason if failure else None])
    return _csv([*heads, "rounds_to", "bytes_to", "flops_to", "failure"], lines)


def _csv(heads: list[str], lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for line in lines:
        writer.writerow([f"{cell:.10g}" if isinstance(cell, float) else cell for cell in line])
    return text.getvalue()


def _both(run: Run, rows: Sequence[SummaryRow]) -> list[tuple[dict[str, list[str]], str]]:
    """The main table and, if there is one, that of seeds; each with its note."""
    main, seeds = table_columns(run, rows), seed_columns(rows)
    return [(main, footnote(run, rows)), *([(seeds, seed_note(rows))] if seeds else [])]


def _costs(rows: Sequence[SummaryRow], goal: str) -> dict[str, list[str]]:
    def cells(costs: list[Estimate | None], unit: float) -> list[str]:
        return [cell(row, cost, unit) for row, cost in zip(rows, costs, strict=True)]

    def cell(row: SummaryRow, cost: Estimate | None, unit: float) -> str:
        if cost is None:
            return NONE if row.unfinished else "never"
        number = brief(cost.mean / unit) if unit else f"{cost.mean:.0f}"
        return number if row.reached == row.seeds else f"{number} ({row.reached}/{row.seeds})"

    traffic, compute = [row.bytes_to for row in rows], [row.flops_to for row in rows]
    (byte, byte_name), (flop, flop_name) = _unit(traffic), _unit(compute)
    return {
        f"Rounds to {goal} %": cells([row.rounds_to for row in rows], 0),
        f"Traffic to {goal} % ({byte_name}B)": cells(traffic, byte),
        f"Compute to {goal} % ({flop_name}FLOP)": cells(compute, flop),
    }


def _totals(rows: Sequence[SummaryRow]) -> dict[str, list[str]]:
    traffic, compute = [row.bytes for row in rows], [row.flops for row in rows]
    (byte, byte_name), (flop, flop_name) = _unit(traffic), _unit(compute)
    return {
        f"Traffic ({byte_name}B)": [brief(cost.mean / byte) if cost else NONE for cost in traffic],
        f"Compute ({flop_name}FLOP)": [brief(c.mean / flop) if c else NONE for c in compute],
    }


def _unit(costs: Sequence[Estimate | None]) -> tuple[float, str]:
    return common_prefix(cost.mean for cost in costs if cost is not None)


def _result(row: SummaryRow, estimate: Estimate | None) -> str:
    return NONE if estimate is None else row.score.numbers(estimate)


def _interval(row: SummaryRow, estimate: Estimate | None, sign: str = "") -> str:
    if estimate is None:
        return NONE
    mean, *ends = (row.score.number(x, sign) for x in (estimate.mean, *(estimate.interval or ())))
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def _in(units: Iterable[str]) -> str:
    """The unit in brackets, if all rows have the same one."""
    known = set(units)
    return f" ({unit})" if len(known) == 1 and (unit := known.pop()) else ""


def _is_text(head: str) -> bool:
    return head in (ALGORITHM, NOTES)


def escape_markdown(text: str) -> str:
    """The text escaped for Markdown, on one line."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]~])", r"\\\1", re.sub(r"\s+", " ", safe))


_LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # after \\ it would be read as its optional argument
    "*": "{*}",  # after \\ likewise
    "·": r"$\cdot$",
    "±": r"$\pm$",
    BEST: r"$\star$",
    NONE: "--",
}


def escape_latex(text: str) -> str:
    """The text escaped for LaTeX, on one line."""
    safe = "".join(_LATEX.get(sign, sign) for sign in re.sub(r"\s+", " ", text))
    return re.sub(r"(?<![\w)])([+-])(?=\d)", r"$\1$", safe)  # a sign, not a hyphen
