"""Plots of a history, drawn by the code of the report's figures."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from undrift.config import UndriftError
from undrift.measure.quantities import AXES
from undrift.report.drawing import draw_curves, draw_grid, draw_legend, legend_lines, styled, x_axis
from undrift.report.read import Arm, TrialRecord
from undrift.report.score import LOSS

if TYPE_CHECKING:
    from undrift.report.history import History

PANEL = (4.4, 2.8)
"""inches: the size of one panel"""


class Plot(Figure):
    """A figure that notebooks display without pyplot."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=144)
        return file.getvalue()


def plot_history(
    history: History, metrics: Sequence[str], x: str, smooth: float, ax: Axes | None
) -> Figure:
    """See `History.plot`."""
    if not 0 <= smooth < 1:
        raise UndriftError(f"smooth={smooth}: must be at least 0 and less than 1")
    if ax is not None and len(metrics) > 1:
        raise UndriftError(f"ax holds one metric, not {', '.join(metrics)}; leave ax out")
    drawn = {metric: _arms(history, metric, x, smooth) for metric in metrics}
    panels = [partial(_draw, arms=arms, metric=metric, x=x) for metric, arms in drawn.items()]
    arms = drawn[metrics[0]]
    if ax is not None:
        panels[0](ax)
        if lines := legend_lines(arms):
            ax.legend(handles=lines)
        return ax.get_figure(root=True)  # type: ignore[return-value]  # axes are in a figure
    columns = len(panels) if len(panels) <= 3 else math.ceil(len(panels) ** 0.5)
    size = (PANEL[0] * columns, PANEL[1] * math.ceil(len(panels) / columns))
    with styled():
        figure = Plot(figsize=size, layout="constrained")
        draw_grid(figure, panels, columns)
        draw_legend(figure, arms)
    return figure


def _arms(history: History, metric: str, x: str, smooth: float) -> list[Arm]:
    """One arm per label, from the rows in which both columns are finite."""
    for name in (metric, x):
        if history[name].dtype.kind not in "if":
            raise UndriftError(f"{name} is not a column of numbers")
    points: dict[str, dict[Any, dict[int, tuple[float, float]]]] = {}
    for row, along, value in zip(history, history[x], history[metric], strict=True):
        seeds = points.setdefault(row["label"], {})
        if math.isfinite(along) and math.isfinite(value):
            seeds.setdefault(row["seed"], {})[row["round"]] = (along, value)
    if not any(points.values()):
        raise UndriftError(f"there are no values of {metric} by {x} yet")
    return [
        Arm(
            name=label,
            label=label,
            run="",
            problem="",
            seeds=tuple(seeds),
            curves={seed: _curve(curve, metric, x, smooth) for seed, curve in seeds.items()},
            failures={},
            rounds=0,
            score=LOSS,
        )
        for label, seeds in points.items()
    ]


def _curve(
    points: dict[int, tuple[float, float]], metric: str, x: str, share: float
) -> TrialRecord:
    """Points by round, smoothed by an exponential moving average without bias at the start."""
    rounds = sorted(points)
    total = weight = 0.0
    values = []
    for t in rounds:
        total = share * total + (1 - share) * points[t][1]
        weight = share * weight + (1 - share)
        values.append(total / weight)
    along = np.array([points[t][0] for t in rounds], dtype=np.float64)
    return TrialRecord(np.array(rounds), {x: along, metric: np.array(values)}, {})


def _draw(ax: Axes, arms: Sequence[Arm], metric: str, x: str) -> None:
    largest = max(float(curve[x].max()) for arm in arms for curve in arm.curves.values())
    unit, label = x_axis(x, largest) if x in AXES else (1.0, x.capitalize())
    draw_curves(ax, arms, metric, x, unit=unit)
    ax.set(xlabel=label, ylabel=metric)
