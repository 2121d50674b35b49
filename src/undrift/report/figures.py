"""Figures for a paper, as PDF, SVG and PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from undrift.measure.quantities import QUANTITIES
from undrift.report.drawing import (
    Draw,
    draw_grid,
    draw_legend,
    legend_height,
    plot_curves,
    plot_partition,
    styled,
)
from undrift.report.read import Run
from undrift.report.score import ACCURACY, LOSS
from undrift.runs.reading import LabelCounts
from undrift.system.files import replace_file

COLUMN, PAGE = 3.4, 7.0
"""inches: the width of one column and of a page of a two-column paper"""

BALANCED = "balanced_accuracy"
"""a figure that is drawn only where classes differ in size"""

FORMATS = ("pdf", "svg", "png")
"""file types of figures; PDF takes longer than the others together"""


def write_figures(run: Run, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write every figure that the run has data for; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (size, draw) in _plan(run).items():
        paths = [folder / f"{name}.{kind}" for kind in formats]
        _save(size, draw, paths)
        written += paths
    return written


def write_partition(labels: LabelCounts, path: Path, title: str = "") -> None:
    """Draw one partition into a .png, .svg or .pdf file: clients × classes."""
    _save((PAGE, 2.4), lambda figure: plot_partition(figure.subplots(), labels, title), [path])


def _save(size: tuple[float, float], draw: Draw, paths: list[Path]) -> None:
    """Draw a figure of this size in inches and save it, without dates or versions in the files."""
    from matplotlib.figure import Figure

    nameless: dict[str, dict[str, Any]] = {
        ".png": {"Software": None},
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None, "Producer": None},
    }
    with styled():
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.draw_without_rendering()  # computes the layout once for all files
        figure.set_layout_engine("none")
        for path in paths:
            file = io.BytesIO()
            figure.savefig(file, format=path.suffix[1:], metadata=nameless[path.suffix])
            replace_file(path, file.getvalue())


def _plan(run: Run) -> dict[str, tuple[tuple[float, float], Draw]]:
    """File name → size in inches and the function that draws it."""

    def curves(*panels: tuple[str, str]) -> Draw:
        def draw(figure: Any) -> None:
            axes = figure.subplots(1, len(panels), squeeze=False)[0]
            for ax, (metric, x) in zip(axes, panels, strict=True):
                plot_curves(ax, run, metric, x)
            draw_legend(figure, run.arms)

        return draw

    shown = _CURVES if run.imbalanced else {k: v for k, v in _CURVES.items() if k != BALANCED}
    legend = legend_height(run.arms, COLUMN)
    plan: dict[str, tuple[tuple[float, float], Draw]] = {}
    for name, wanted in shown.items():
        panels = [
            (m, x) for m, x in wanted if run.recorded(m) and (x == "round" or run.recorded(x))
        ]
        if panels:
            plan[name] = (COLUMN * len(panels), 2.3 + legend), curves(*panels)
    for number, labels in enumerate(run.partitions.values(), start=1):
        name = "partition" if len(run.partitions) == 1 else f"partition_{number}"
        plan[name] = (PAGE, 2.4), partial(_draw_partition, labels=labels)
    overview = _overview(run)
    if overview:
        size = (PAGE * 1.15, 0.4 + 2.4 * math.ceil(len(overview) / 2))
        plan["overview"] = size, partial(_draw_overview, run=run, panels=overview)
    return plan


def _draw_partition(figure: Any, labels: LabelCounts) -> None:
    plot_partition(figure.subplots(), labels)


def _overview(run: Run) -> list[Draw]:
    """Panels of the overview: the first four that the run has data for."""
    main = ACCURACY.metric if run.recorded(ACCURACY.metric) else LOSS.metric
    titles = {(main, x): f"{QUANTITIES[main].title} by {word}" for x, word in _BY.items()}
    titles |= {(one, "round"): QUANTITIES[one].title for one in ("h_norm", "drift", "x_norm")}
    panels: list[Draw] = [
        partial(plot_curves, run=run, metric=metric, x=x, title=title)
        for (metric, x), title in titles.items()
        if run.recorded(metric) and run.recorded(x)
    ]
    if len(run.partitions) == 1:
        (labels,) = run.partitions.values()
        panels.insert(3, partial(plot_partition, labels=labels, title="Labels of the clients"))
    return panels[:4]


def _draw_overview(figure: Any, run: Run, panels: list[Draw]) -> None:
    draw_grid(figure, panels, columns=2)
    draw_legend(figure, run.arms)


_CURVES = {
    "accuracy": [("accuracy", "round")],
    BALANCED: [(BALANCED, "round")],
    "loss": [("loss", "round")],
    "accuracy_traffic": [("accuracy", "bytes")],
    "accuracy_compute": [("accuracy", "flops")],
    "norms": [("x_norm", "round"), ("h_norm", "round")],
    "drift": [("drift", "round")],
    "gsi": [("gsi", "round")],
}
"""figure → metric and x-axis of each panel"""

_BY = {"round": "round", "bytes": "traffic"}
"""x-axes of the main curves in the overview → word in their titles"""
