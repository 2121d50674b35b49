"""Tables of studies and sweeps, as cells, Markdown and LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from undrift.report.estimate import Estimate
from undrift.report.tables import escape_latex, escape_markdown
from undrift.tune.study import Settings

if TYPE_CHECKING:
    from undrift.tune.outcome import Outcome
    from undrift.tune.running import Desk


def table(here: Desk, found: list[Outcome]) -> dict[str, list[str]]:
    """Heading → cells, one row for each algorithm."""
    unit = here.score.heading
    columns = {
        "Algorithm": [one.arm.label for one in found],
        "Trials": [f"{len(one.records)}{_failed(one)}" for one in found],
        "Best settings": [settings_text(one.winner.settings) if one.winner else "–"
                          for one in found],
        f"Validation {unit}": [_validation(here, one) for one in found],
    }  # fmt: skip
    if here.study.final_seeds:
        columns[f"Test {unit}, tuned"] = [_tested(here, one.tuned) for one in found]
        columns[f"Test {unit}, defaults"] = [_tested(here, one.defaults) for one in found]
    columns["Tied with the best"] = [_tied(here, one) for one in found]
    columns["Within a point" if not here.lower else "Within 1 %"] = [
        f"{100 * one.near:.0f} %" for one in found
    ]
    return columns


def settings_text(settings: Settings) -> str:
    """The settings in a line; a whole number is written as one: local.epochs=1, not 1.0."""
    return ", ".join(f"{name}={str(value).removesuffix('.0')}" for name, value in settings.items())


def _failed(one: Outcome) -> str:
    count = sum(record.last is not None and record.last.failure is not None
                for record in one.records)  # fmt: skip
    return f" ({count} failed)" if count else ""


def _validation(here: Desk, one: Outcome) -> str:
    if one.winner is None or one.winner.last is None or one.winner.last.objective is None:
        return "all failed"
    alone = Estimate.of([one.winner.last.objective])
    return _estimate(here, one.chosen or alone)


def _tied(here: Desk, one: Outcome) -> str:
    if one.tied is None:
        return "–"
    return f"{one.tied} of {len(one.parts)}"


def _tested(here: Desk, result: dict[str, Any] | None) -> str:
    if result is None:
        return "–"
    known = [value for value in result["test"].values() if value is not None]
    lost = f" ({len(result['failures'])} failed)" if result["failures"] else ""
    return _estimate(here, Estimate.of(known, here.score.bounds)) + lost


def _estimate(here: Desk, one: Estimate | None) -> str:
    if one is None:
        return "–"
    number = here.score.number
    ends = [number(end) for end in one.interval or ()]
    return f"{number(one.mean)} [{', '.join(ends)}]" if ends else number(one.mean)


def markdown(columns: dict[str, list[str]], notes: list[str]) -> str:
    """A table with its notes, as Markdown."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "|".join(":--" for _ in columns) + "|"]
    for cells in zip(*columns.values(), strict=True):
        lines.append("| " + " | ".join(map(escape_markdown, cells)) + " |")
    return "\n".join([*lines, "", *(escape_markdown(note) + "\n" for note in notes)])


def tex(columns: dict[str, list[str]], notes: list[str]) -> str:
    """A table as LaTeX, with its notes as comments."""
    lines = [r"% needs \usepackage{booktabs}", *(f"% {escape_latex(note)}" for note in notes)]
    lines += [rf"\begin{{tabular}}{{{'l' * len(columns)}}}", r"\toprule"]
    lines += [" & ".join(map(escape_latex, columns)) + r" \\", r"\midrule"]
    for cells in zip(*columns.values(), strict=True):
        lines.append(" & ".join(map(escape_latex, cells)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])
