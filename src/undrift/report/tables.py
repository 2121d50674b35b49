"""Tables: the summary as Markdown, LaTeX and CSV, and for the terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from undrift.report.read import Run
from undrift.report.summary import Estimate, Row, finals, first_hit, peak, tail
from undrift.report.units import brief, common_prefix, percent

if TYPE_CHECKING:
    from rich.table import Table

BEST = "★"
NONE = "–"
ALGORITHM, FINAL, NOTES = "Algorithm", "Final accuracy (%)", "Notes"

FALLEN = 0.8
"""a final accuracy below this share of the best one is worth a note"""


_ESTIMATES = (
    *("final", "behind", "difference", "tail", "peak"),
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


def seed_columns(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Heading → cells of the table of intervals and differences; empty if there are neither."""
    if not any(row.baseline or (row.final and row.final.interval) for row in rows):
        return {}
    columns = {
        ALGORITHM: [row.arm.label for row in rows],
        "Final accuracy (%), 95 % interval": [_interval(row.final) for row in rows],
    }
    if any(row.baseline for row in rows):
        columns["Difference to the baseline (points), 95 % interval"] = [
            "baseline" if row.arm is row.baseline else _interval(row.difference, "+")
            for row in rows
        ]
        columns["Wins, losses"] = [
            f"{row.wins}, {row.losses}" if row.gaps and row.arm is not row.baseline else NONE
            for row in rows
        ]
    return columns


def seed_note(rows: Sequence[Row]) -> str:
    """How to read the table of intervals."""
    text = "Brackets hold 95 % intervals of the mean over seeds, by Student's t."
    baselines = dict.fromkeys(row.baseline.label for row in rows if row.baseline)
    if baselines:
        text += (
            f" Differences are to {', '.join(baselines)}, on the seeds that both finished; a win is"
            " a seed on which the algorithm ends above it."
        )
    return text


def notes(row: Row) -> str:
    """What the numbers of a row leave out."""
    said = [
        f"{count}/{row.seeds} seeds {what}"
        for count, what in ((row.diverged, "diverged"), (row.unfinished, "unfinished"))
        if count
    ]
    if row.final and row.peak and row.final.mean < FALLEN * row.peak.mean:
        said.append(f"fell from {percent(row.peak.mean)} %")
    return ", ".join(said)


def footnote(run: Run) -> str:
    """How to read the table, in a sentence or two."""
    spread = "mean ± sd over seeds" if len(run.seeds) > 1 else "one seed, so without a spread"
    problems = " on the same problem" if len({arm.problem for arm in run.arms}) > 1 else ""
    text = f"Accuracy on the test set, {spread}; {BEST} marks the best of those that finished"
    text += f"{problems}."
    if run.target is not None:
        text += (
            f" Costs are those of all clients up to the first evaluated round with at least"
            f" {percent(run.target)} %, averaged over the seeds that got there."
        )
    return text


def markdown_table(run: Run, rows: Sequence[Row]) -> str:
    """The tables in Markdown, the best row in bold."""

    def table(columns: dict[str, list[str]], note: str) -> list[str]:
        lines = ["| " + " | ".join(columns) + " |"]
        lines.append("|" + "|".join(":--" if _is_text(head) else "--:" for head in columns) + "|")
        for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
            escaped = [_escape(cell) for cell in cells]
            if row.leads:
                escaped[:2] = [f"**{cell}**" for cell in escaped[:2]]
            lines.append("| " + " | ".join(escaped) + " |")
        return [*lines, "", _escape(note), ""]

    return "\n".join(line for columns, note in _both(run, rows) for line in table(columns, note))


def latex_table(run: Run, rows: Sequence[Row]) -> str:
    """The tables in LaTeX, for the package booktabs, the best row in bold."""

    def table(columns: dict[str, list[str]], note: str) -> list[str]:
        kinds = "".join("l" if _is_text(head) else "r" for head in columns)
        lines = [f"% {_latex(note)}", rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
        lines += [" & ".join(map(_latex, columns)) + r" \\", r"\midrule"]
        for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
            escaped = [_latex(cell) for cell in cells]
            if row.leads:
                escaped[:2] = [rf"\textbf{{{cell}}}" for cell in escaped[:2]]
            lines.append(" & ".join(escaped) + r" \\")
        return [*lines, r"\bottomrule", r"\end{tabular}", ""]

    lines = [line for columns, note in _both(run, rows) for line in table(columns, note)]
    return "\n".join([r"% needs \usepackage{booktabs}", *lines])


def rich_table(run: Run, rows: Sequence[Row]) -> Table:
    """The table for a terminal: narrow, with the notes below it."""
    said = "".join(f"\n{row.arm.label}: {notes(row)}." for row in rows if notes(row))
    return _rich(table_columns(run, rows, compact=True), rows, footnote(run) + said)


def rich_seed_table(rows: Sequence[Row]) -> Table:
    """The table of intervals and paired differences for a terminal."""
    return _rich(seed_columns(rows), rows, seed_note(rows))


def _rich(columns: dict[str, list[str]], rows: Sequence[Row], note: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, caption=Text(note), caption_justify="left", pad_edge=False)
    for head in columns:
        tall = re.sub(r" (?=accuracy|to |\(|95)", "\n", head)
        if _is_text(head):
            table.add_column(tall, overflow="fold", min_width=len(head))
        else:
            table.add_column(tall, justify="right", no_wrap=True)
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*map(Text, cells), style="bold green" if row.leads else None)
    return table


def csv_table(run: Run, rows: Sequence[Row]) -> str:
    """All numbers in full: accuracies as shares, traffic in bytes, compute in operations."""
    heads = ["run", "algorithm", "label", "seeds", "diverged", "unfinished", "leads"]
    heads += ["target", "reached", "baseline", "wins", "losses"]
    heads += [f"{name}_{part}" for name in _ESTIMATES for part in ("mean", "sd", "low", "high")]
    lines = []
    for row in rows:
        line = [row.arm.run, row.arm.name, row.arm.label, row.seeds, row.diverged, row.unfinished]
        line += [int(row.leads), run.target, row.reached]
        line += [row.baseline.label, row.wins, row.losses] if row.baseline else [None] * 3
        for name in _ESTIMATES:
            one: Estimate | None = getattr(row, name)
            line += [None] * 4 if one is None else [one.mean, one.sd, *(one.interval or [None] * 2)]
        lines.append(line)
    return _csv(heads, lines)


def seeds_csv(run: Run, rows: Sequence[Row]) -> str:
    """One line for each algorithm and seed: what went into the means, and where it ended."""
    heads = ["run", "algorithm", "label", "seed", "rounds", "final", "tail", "peak", "difference"]
    lines = []
    for row in rows:
        done = finals(row.arm)
        for seed, curve in row.arm.curves.items():
            line = [row.arm.run, row.arm.name, row.arm.label, seed, int(curve.rounds[-1])]
            line += [done.get(seed), tail(curve) if seed in done else None, peak(curve)]
            hit = first_hit(curve, run.target)
            costs = [None if hit is None else curve[x][hit] for x in ("round", "bytes", "flops")]
            verdict = row.arm.verdicts.get(seed)
            lines.append([*line, row.gaps.get(seed), *costs, verdict.reason if verdict else None])
    return _csv([*heads, "rounds_to", "bytes_to", "flops_to", "verdict"], lines)


def _csv(heads: list[str], lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for line in lines:
        writer.writerow([f"{cell:.10g}" if isinstance(cell, float) else cell for cell in line])
    return text.getvalue()


def _both(run: Run, rows: Sequence[Row]) -> list[tuple[dict[str, list[str]], str]]:
    """The tables that people read, each with its note."""
    main, seeds = table_columns(run, rows), seed_columns(rows)
    return [(main, footnote(run)), *([(seeds, seed_note(rows))] if seeds else [])]


def _costs(rows: Sequence[Row], goal: str) -> dict[str, list[str]]:
    def cells(costs: list[Estimate | None], unit: float) -> list[str]:
        return [cell(row, cost, unit) for row, cost in zip(rows, costs, strict=True)]

    def cell(row: Row, cost: Estimate | None, unit: float) -> str:
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


def _interval(estimate: Estimate | None, sign: str = "") -> str:
    if estimate is None:
        return NONE
    ends = [f"{100 * end:{sign}.2f}" for end in estimate.interval or ()]
    return f"{100 * estimate.mean:{sign}.2f}" + (f" [{', '.join(ends)}]" if ends else "")


def _is_text(head: str) -> bool:
    return head in (ALGORITHM, NOTES)


def _escape(text: str) -> str:
    """Markdown that shows the text as it is, on one line."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]~])", r"\\\1", re.sub(r"\s+", " ", safe))


_LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # at the start of a row it would belong to the end of the one before
    "*": "{*}",  # likewise
    "·": r"$\cdot$",
    "±": r"$\pm$",
    BEST: r"$\star$",
    NONE: "--",
}


def _latex(text: str) -> str:
    """LaTeX that shows the text as it is, on one line."""
    safe = "".join(_LATEX.get(sign, sign) for sign in re.sub(r"\s+", " ", text))
    return re.sub(r"(?<![\w)])([+-])(?=\d)", r"$\1$", safe)  # a sign, not a hyphen
