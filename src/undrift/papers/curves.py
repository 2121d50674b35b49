"""Figures of curves over rounds, as the papers draw them, from the results that are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from undrift.later import np
from undrift.measure.quantities import QUANTITIES
from undrift.papers.judging import CellOutcome, Outcome
from undrift.papers.layers import matches
from undrift.papers.tables import setting_of
from undrift.report.drawing import styled, wide
from undrift.report.palette import ink
from undrift.runs.columns import Floats
from undrift.system.extras import require


def draw_curves(outcome: Outcome, cells: str = "*") -> Any:
    """Panels for each setting that was run, one per curve of the item; None if there is none.

    A line is the mean over the seeds of a row, its band is from the least to the largest of them.
    """
    require("matplotlib", "report", "the papers' figures")
    from matplotlib.figure import Figure

    some = [scales for id, scales in outcome.cells.items() if matches(id, cells)]
    run = [one for scales in some for one in scales if any(row.curves for row in one.rows.values())]
    if not run:
        return None
    drawn = {label for one in run for label, row in one.rows.items() if row.curves}
    known = dict.fromkeys(row.label for one in run for row in one.cell.rows)  # in their order
    labels = [label for label in known if label in drawn]
    metrics = outcome.item.curves
    with styled():
        width = max(4.5 * len(metrics), 7.0)
        entry = 0.6 + 0.075 * max(map(len, labels))  # inches: a line and its label in the legend
        columns = min(len(labels), int(width / entry))
        height = 0.2 + 0.2 * math.ceil(len(labels) / columns) + 2.3 * len(run)
        figure = Figure(figsize=(width, height), layout="constrained")
        grid = figure.subplots(len(run), len(metrics), squeeze=False)
        for line, cell in zip(grid, run, strict=True):
            for axes, metric in zip(line, metrics, strict=True):
                _panel(axes, cell, metric, labels)
        lines = {line.get_label(): line for axes in grid.flat for line in axes.lines}
        handles = list(lines.values())
        figure.legend(handles=handles, loc="outside upper center", ncols=columns)
    return figure


def _panel(axes: Any, cell: CellOutcome, metric: str, labels: Sequence[str]) -> None:
    quantity, every = QUANTITIES[metric], []
    for place, label in enumerate(labels):
        row = cell.rows.get(label)
        if row is None or not row.curves:
            continue
        rounds, values = over_seeds(row.curves, metric)
        values *= quantity.factor
        every.append(values[np.isfinite(values)])
        style = ink(place)
        mean = np.nanmean(values, axis=0)
        axes.plot(rounds, mean, color=style.colour, linestyle=style.line, label=label)
        band = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        axes.fill_between(rounds, *band, color=style.colour, alpha=0.14, linewidth=0)
    if quantity.scale == "log" and wide(np.concatenate(every)):
        axes.set_yscale("log")
    axes.set(xlabel="Round", ylabel=quantity.full_title, title=setting_of(cell))
    axes.margins(x=0.01)


def over_seeds(
    curves: Sequence[Mapping[str, Sequence[float | None]]], metric: str
) -> tuple[Floats, Floats]:
    """The rounds in which some seed has a value, and seeds × rounds with NaN for no value."""
    found = [
        {
            round: value
            for round, value in zip(curve["round"], curve[metric], strict=True)
            if value is not None
        }
        for curve in curves
    ]
    rounds = sorted({round for one in found for round in one if round is not None})
    table = [[one.get(round, np.nan) for round in rounds] for one in found]
    return np.array(rounds, dtype=float), np.array(table, dtype=float)
