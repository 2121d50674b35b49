"""Figures of outcomes: our results with their intervals, beside the paper's values."""

from __future__ import annotations

import io
import math
from typing import Any

from undrift.papers.judging import CellOutcome, Outcome
from undrift.papers.layers import matches
from undrift.papers.tables import setting_of
from undrift.report.drawing import draw_grid, styled
from undrift.report.palette import ink
from undrift.system.extras import require

COLUMNS = 3


def draw_outcome(outcome: Outcome, cells: str = "*") -> Any:
    """A panel for each setting that was run, with a line for each row; None if there is none.

    cells  which settings, as for `undrift paper run`
    """
    require("matplotlib", "report", "the papers' figures")
    from matplotlib.figure import Figure

    run = {id: one for id, one in outcome.cells.items() if one.run and matches(id, cells)}
    if not run:
        return None
    labels = list(dict.fromkeys(row.label for one in run.values() for row in one.cell.rows))
    columns = min(COLUMNS, len(run))
    height = 0.55 + math.ceil(len(run) / columns) * (0.6 + 0.17 * len(labels))
    with styled():
        figure = Figure(figsize=(9.0, height), layout="constrained")
        draw_grid(figure, [_panel(outcome, one, labels) for one in run.values()], columns)
        for place, axes in enumerate(figure.axes):
            if place % columns:
                axes.set_yticklabels([])
        figure.supxlabel(_axis(outcome), fontsize=8)
    return figure


def svg(figure: Any) -> str:
    """A figure as an element of a page."""
    with styled(), io.StringIO() as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()[file.getvalue().index("<svg") :]


def _axis(outcome: Outcome) -> str:
    name, measure = outcome.item.main
    unit = f" ({measure.unit})" if measure.unit else ""
    return f"{name}{unit}: ours with 95 % interval (●), the paper's (◇)"


def _panel(outcome: Outcome, cell: CellOutcome, labels: list[str]) -> Any:
    printed = outcome.item.printed.get(cell.cell.id, {})

    def draw(axes: Any) -> None:
        for y, label in enumerate(labels):
            colour = ink(y).colour
            found = row.estimate(outcome.item.main[0]) if (row := cell.rows.get(label)) else None
            if found is not None:
                low, high = found.interval or (found.mean, found.mean)
                axes.plot([low, high], [y, y], color=colour, linewidth=1.6)
                axes.plot([found.mean], [y], "o", color=colour, markersize=4.5)
            if label in printed:
                axes.plot([printed[label][0]], [y], "D", color=colour, fillstyle="none", ms=4)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_title(setting_of(cell))

    return draw
