"""Tables of the summary: their columns, and Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from undrift.measure.quantities import QUANTITIES
from undrift.report.estimate import Estimate
from undrift.report.notes import BEST, footnote, has_intervals, joined, notes, seed_note
from undrift.report.read import Run
from undrift.report.summary import SummaryRow
from undrift.report.units import brief, common_prefix, percent

NONE = "–"
ALGORITHM, NOTES = "Algorithm", "Notes"

COLUMNS = (
    *("final", "balanced", "behind", "last", "best", "clients", "personal"),
    *("seeds", "rounds", "traffic", "compute", "notes"),
)
"""columns of the main table that can be chosen; algorithms come first in any case"""


def table_columns(
    run: Run, rows: Sequence[SummaryRow], names: Sequence[str] | None = None
) -> dict[str, list[str]]:
    """Heading → cells of the main table, with the columns of these names; by default all."""
    chosen = COLUMNS if names is None else names
    columns = {
        ALGORITHM: [f"{row.arm.label} {BEST}" if row.leads else row.arm.label for row in rows]
    }
    for name in chosen:
        if names is not None or worth_showing(name, run, rows):
            columns |= _column(name, run, rows)
    return columns


def worth_showing(name: str, run: Run, rows: Sequence[SummaryRow]) -> bool:
    """Whether a column that was not asked for says anything."""
    match name:
        case "notes":
            return any(notes(row) for row in rows)
        case "balanced":
            return bool(run.imbalanced)
        case "clients" | "personal":
            return any(getattr(row, name) for row in rows)
        case "seeds":
            return len({row.seeds for row in rows}) > 1
        case "rounds":
            return run.target is not None
    return True


def _column(name: str, run: Run, rows: Sequence[SummaryRow]) -> dict[str, list[str]]:
    """Heading and cells of one column."""
    result = joined(row.score.heading for row in rows)
    match name:
        case "final":
            return {f"Final {result}": [_result(row, row.final) for row in rows]}
        case "balanced":
            return {
                QUANTITIES["balanced_accuracy"].axis_title(): [
                    _result(row, row.balanced) for row in rows
                ]
            }
        case "behind":
            head = f"Behind the best{_in(row.score.gap for row in rows)}"
            return {head: [NONE if row.leads else _result(row, row.behind) for row in rows]}
        case "last":
            head = f"Last tenth of rounds{_in(row.score.unit for row in rows)}"
            return {head: [_result(row, row.tail) for row in rows]}
        case "best":
            return {f"Best {result}": [_result(row, row.peak) for row in rows]}
        case "clients" | "personal":
            head = "Own tests" if name == "clients" else "Personal"
            kinds = joined(row.score.unit or "loss" for row in rows)
            return {f"{head} ({kinds})": [_result(row, getattr(row, name)) for row in rows]}
        case "seeds":
            return {"Seeds": [str(row.seeds) for row in rows]}
        case "rounds":
            if run.target is None:
                return {"Rounds": [str(row.arm.rounds) for row in rows]}
            cells = [_cost(row, row.rounds_to, lambda mean: f"{mean:.0f}") for row in rows]
            return {f"Rounds to {percent(run.target)} %": cells}
        case "notes":
            return {NOTES: [notes(row) or NONE for row in rows]}
    return _costs(name, run, rows)


def _costs(name: str, run: Run, rows: Sequence[SummaryRow]) -> dict[str, list[str]]:
    """Traffic or compute: to the target, or in total."""
    field, unit = {"traffic": ("bytes", "B"), "compute": ("flops", "FLOP")}[name]
    goal = "" if run.target is None else f" to {percent(run.target)} %"
    field += "_to" if goal else ""
    costs: list[Estimate | None] = [getattr(row, field) for row in rows]
    size, letter = common_prefix(cost.mean for cost in costs if cost is not None)
    told = f" ({letter}{unit})" if any(costs) else ""

    def cell(row: SummaryRow, cost: Estimate | None) -> str:
        own = row.since.get(field)
        since = "" if own is None else f"{brief(own.mean / size)} of "
        if goal:
            return _cost(row, cost, lambda mean: since + brief(mean / size))
        return NONE if cost is None else since + brief(cost.mean / size)

    cells = [cell(row, cost) for row, cost in zip(rows, costs, strict=True)]
    return {f"{name.capitalize()}{goal}{told}": cells}


def _cost(row: SummaryRow, cost: Estimate | None, number: Callable[[float], str]) -> str:
    """A cost to the target, with the number of seeds that got there if not all did."""
    if cost is None:
        return NONE if row.unfinished else "never"
    text = f"≤ {number(cost.mean)}" if row.early else number(cost.mean)
    return text if row.reached == row.seeds else f"{text} ({row.reached}/{row.seeds})"


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


def markdown_table(run: Run, rows: Sequence[SummaryRow], names: Sequence[str] | None = None) -> str:
    """The tables in Markdown, the best algorithm and its result in bold."""

    def table(columns: dict[str, list[str]], note: str) -> list[str]:
        lines = ["| " + " | ".join(columns) + " |"]
        lines.append("|" + "|".join(":--" if _is_text(head) else "--:" for head in columns) + "|")
        for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
            escaped = [escape_markdown(cell) for cell in cells]
            if row.leads:
                escaped = _emphasised(columns, escaped, "**{}**")
            lines.append("| " + " | ".join(escaped) + " |")
        return [*lines, "", escape_markdown(note), ""]

    return "\n".join(
        line for columns, note in _both(run, rows, names) for line in table(columns, note)
    )


def latex_table(run: Run, rows: Sequence[SummaryRow], names: Sequence[str] | None = None) -> str:
    """The tables in LaTeX with booktabs, the best algorithm and its result in bold."""

    def table(columns: dict[str, list[str]], note: str) -> list[str]:
        kinds = "".join("l" if _is_text(head) else "r" for head in columns)
        lines = [f"% {escape_latex(note)}", rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
        lines += [" & ".join(map(escape_latex, columns)) + r" \\", r"\midrule"]
        for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
            escaped = [escape_latex(cell) for cell in cells]
            if row.leads:
                escaped = _emphasised(columns, escaped, r"\textbf{{{}}}")
            lines.append(" & ".join(escaped) + r" \\")
        return [*lines, r"\bottomrule", r"\end{tabular}", ""]

    lines = [line for columns, note in _both(run, rows, names) for line in table(columns, note)]
    return "\n".join([r"% needs \usepackage{booktabs}", *lines])


def _emphasised(columns: Iterable[str], cells: Sequence[str], mark: str) -> list[str]:
    """The cells of a row, with a mark around its name and the result that it leads in."""
    return [
        mark.format(cell) if head == ALGORITHM or head.startswith("Final ") else cell
        for head, cell in zip(columns, cells, strict=True)
    ]


def _both(
    run: Run, rows: Sequence[SummaryRow], names: Sequence[str] | None
) -> list[tuple[dict[str, list[str]], str]]:
    """The main table and, if there is one, that of seeds; each with its note."""
    main, seeds = table_columns(run, rows, names), seed_columns(rows)
    return [(main, footnote(run, rows)), *([(seeds, seed_note(rows))] if seeds else [])]


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
    "≤": r"$\le$",
    "→": r"$\to$",
}


def escape_latex(text: str) -> str:
    """The text escaped for LaTeX, on one line."""
    safe = "".join(_LATEX.get(sign, sign) for sign in re.sub(r"\s+", " ", text))
    return re.sub(r"(?<![\w)])([+-])(?=\d)", r"$\1$", safe)  # a sign, not a hyphen
