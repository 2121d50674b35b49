"""Figures of curves over rounds, as the papers draw them, from the results that are kept."""

from __future__ import annotations

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
    labels = list(dict.fromkeys(row.label for one in run for row in one.cell.rows))
    metrics = outcome.item.curves
    with styled():
        size = (max(4.5 * len(metrics), 5.0), 0.4 + 2.3 * len(run))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(run), len(metrics), squeeze=False)
        for line, cell in zip(grid, run, strict=True):
            for axes, metric in zip(line, metrics, strict=True):
                _panel(axes, cell, metric, labels)
        lines = {line.get_label(): line for axes in grid.flat for line in axes.lines}
        figure.legend(
            handles=list(lines.values()), loc="outside upper center", ncols=min(len(lines), 5)
        )
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
