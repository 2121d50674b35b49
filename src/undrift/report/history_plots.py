"""Plots of a history, in the style of reports."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from undrift.config import UndriftError
from undrift.report.figures import STYLE, visible
from undrift.report.palette import ink
from undrift.report.units import prefix

if TYPE_CHECKING:
    from undrift.report.history import History

PANEL = (4.4, 2.8)
"""inches: the size of one panel"""

TrialRecord = dict[int, tuple[float, float]]
"""round → x and y"""


class Plot(Figure):
    """A figure that notebooks show by themselves; pyplot knows nothing of it."""

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
    panels = [(metric, _curves(history, metric, x)) for metric in metrics]
    labels = list(dict.fromkeys(row["label"] for row in history))
    handles = [
        Line2D([], [], color=ink(i).colour, linestyle=ink(i).line, label=visible(label))
        for i, label in enumerate(labels)
        if label
    ]
    if ax is not None:
        _draw(ax, *panels[0], labels, x, smooth)
        if handles:
            ax.legend(handles=handles)
        return ax.get_figure(root=True)  # type: ignore[return-value]  # axes are in a figure
    columns = len(panels) if len(panels) <= 3 else math.ceil(len(panels) ** 0.5)
    lines = math.ceil(len(panels) / columns)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Plot(figsize=(PANEL[0] * columns, PANEL[1] * lines), layout="constrained")
        axes: list[Axes] = list(figure.subplots(lines, columns, squeeze=False).flat)
        for one, (metric, curves) in zip(axes, panels, strict=False):
            _draw(one, metric, curves, labels, x, smooth)
        for one in axes[len(panels) :]:
            one.set_axis_off()
        if handles:
            figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 4))
    return figure


def _curves(history: History, metric: str, x: str) -> dict[str, dict[Any, TrialRecord]]:
    """Label → seed → curve, of the rows that have both numbers."""
    curves: dict[str, dict[Any, TrialRecord]] = {}
    for name in (metric, x):
        if history[name].dtype.kind not in "if":
            raise UndriftError(f"{name} is not a column of numbers")
    points = zip(history, history[x].tolist(), history[metric].tolist(), strict=True)
    for row, along, value in points:
        if math.isfinite(along) and math.isfinite(value):
            seeds = curves.setdefault(row["label"], {})
            seeds.setdefault(row["seed"], {})[row["round"]] = (along, value)
    if not curves:
        raise UndriftError(f"there are no values of {metric} by {x} yet")
    return curves


def _draw(
    ax: Axes,
    metric: str,
    curves: dict[str, dict[Any, TrialRecord]],
    labels: list[str],
    x: str,
    smooth: float,
) -> None:
    every = [curve for seeds in curves.values() for curve in seeds.values()]
    unit, name = _x_axis(x, max(along for curve in every for along, _ in curve.values()))
    for index, label in enumerate(labels):
        seeds = [_smooth(curve, smooth) for curve in curves.get(label, {}).values()]
        if not seeds:
            continue
        style = ink(index)
        shared = sorted(set.intersection(*map(set, seeds)))
        if shared:
            points = np.array([[curve[t] for t in shared] for curve in seeds])
            (along, mean), across = points.mean(axis=0).T, points[:, :, 1]
            along = along / unit
            ax.plot(along, mean, color=style.colour, linestyle=style.line, linewidth=1.3)
            if len(seeds) > 1:
                low, high = mean - across.std(axis=0, ddof=1), mean + across.std(axis=0, ddof=1)
                ax.fill_between(along, low, high, color=style.colour, alpha=0.14, linewidth=0)
        for curve in seeds:
            alone = np.array([curve[t] for t in curve if not shared or t >= shared[-1]])
            if len(alone) > 1:  # this seed has got further than another one
                ax.plot(alone[:, 0] / unit, alone[:, 1], color=style.colour, linewidth=0.6)
    ax.set(xlabel=name, ylabel=metric)
    ax.margins(x=0.01)


def _smooth(curve: TrialRecord, share: float) -> TrialRecord:
    """The curve in order, each value averaged with those before it in weights that fade away."""
    total = weight = 0.0
    found = {}
    for t, (along, value) in sorted(curve.items()):
        total = share * total + (1 - share) * value
        weight = share * weight + (1 - share)
        found[t] = (along, total / weight)
    return found


def _x_axis(x: str, largest: float) -> tuple[float, str]:
    unit, name = prefix(largest / 5)
    names = {"bytes": f"Traffic, down and up ({name}B)", "flops": f"Compute ({name}FLOP)"}
    return (unit, names[x]) if x in names else (1.0, x.capitalize())
