"""Figures: what a paper shows, as PDF, SVG and PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from undrift.later import NDArray, np
from undrift.measure.quantities import QUANTITIES
from undrift.report.palette import ink, inks
from undrift.report.read import Run
from undrift.report.rows import Floats
from undrift.report.score import ACCURACY, LOSS
from undrift.report.text import printable
from undrift.report.units import percent, prefix
from undrift.system.files import replace_file

COLUMN, PAGE = 3.4, 7.0
"""inches: the width of one column and of a page of a two-column paper"""

FORMATS = ("pdf", "svg", "png")
"""kinds of files that figures can be written as; PDF takes longer than the others together"""

MOST_CLIENTS = 500
"""clients that a picture of the partition shows at most"""

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#444444",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E4E6EA",
    "grid.linewidth": 0.6,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.dash_capstyle": "butt",
    "savefig.dpi": 200,
    "text.parse_math": False,
    "svg.hashsalt": "undrift",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # fonts that publishers take
}


def write_figures(run: Run, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write every figure that the run has data for; return the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (size, draw) in _plan(run).items():
        paths = [folder / f"{name}.{kind}" for kind in formats]
        _save(size, draw, paths)
        written += paths
    return written


def write_partition(counts: NDArray[np.int64], path: Path, title: str = "") -> None:
    """Draw one partition into a .png, .svg or .pdf file: clients × classes."""
    _save((PAGE, 2.4), lambda figure: plot_partition(figure.subplots(), counts, title), [path])


Draw = Callable[[Any], None]


def _save(size: tuple[float, float], draw: Draw, paths: list[Path]) -> None:
    """Draw a figure of this size, in our style, into files without any date or version."""
    import matplotlib
    from matplotlib.figure import Figure

    nameless: dict[str, dict[str, Any]] = {
        ".png": {"Software": None},
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None, "Producer": None},
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.draw_without_rendering()  # lays it out, once for all files
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
            _legend(figure, run)

        return draw

    legend = 0.17 * math.ceil(len(run.arms) / _legend_columns(run, COLUMN))
    plan: dict[str, tuple[tuple[float, float], Draw]] = {}
    for name, wanted in _CURVES.items():
        panels = [
            (m, x) for m, x in wanted if run.recorded(m) and (x == "round" or run.recorded(x))
        ]
        if panels:
            plan[name] = (COLUMN * len(panels), 2.3 + legend), curves(*panels)
    for number, counts in enumerate(run.partitions.values(), start=1):
        name = "partition" if len(run.partitions) == 1 else f"partition_{number}"
        plan[name] = (PAGE, 2.4), partial(_draw_partition, counts=counts)
    overview = _overview(run)
    if overview:
        size = (PAGE * 1.15, 0.4 + 2.4 * math.ceil(len(overview) / 2))
        plan["overview"] = size, lambda figure: _draw_overview(figure, run, overview)
    return plan


def _draw_partition(figure: Any, counts: NDArray[np.int64]) -> None:
    plot_partition(figure.subplots(), counts)


def _overview(run: Run) -> list[Draw]:
    """What the overview shows: the first four of these that the run has data for."""
    main = ACCURACY.metric if run.recorded(ACCURACY.metric) else LOSS.metric
    titles = {(main, x): f"{QUANTITIES[main].title} by {word}" for x, word in _BY.items()}
    titles |= {(one, "round"): QUANTITIES[one].title for one in ("h_norm", "drift", "x_norm")}
    panels: list[Draw] = [
        partial(plot_curves, run=run, metric=metric, x=x, title=title)
        for (metric, x), title in titles.items()
        if run.recorded(metric) and run.recorded(x)
    ]
    if len(run.partitions) == 1:
        (counts,) = run.partitions.values()
        panels.insert(3, partial(plot_partition, counts=counts, title="Labels of the clients"))
    return panels[:4]


def _draw_overview(figure: Any, run: Run, panels: list[Draw]) -> None:
    axes = figure.subplots(math.ceil(len(panels) / 2), 2, squeeze=False).flat
    for ax, draw in zip(axes, panels, strict=False):
        draw(ax)
    for ax in list(axes)[len(panels) :]:
        ax.set_axis_off()
    _legend(figure, run)


_CURVES = {
    "accuracy": [("accuracy", "round")],
    "loss": [("loss", "round")],
    "accuracy_traffic": [("accuracy", "bytes")],
    "accuracy_compute": [("accuracy", "flops")],
    "norms": [("x_norm", "round"), ("h_norm", "round")],
    "drift": [("drift", "round")],
    "gsi": [("gsi", "round")],
}
"""figures of curves: metric and x-axis of each panel"""

_BY = {"round": "round", "bytes": "traffic"}
"""x-axes of the main curves of the overview, in words"""


def plot_curves(ax: Any, run: Run, metric: str, x: str, title: str = "") -> None:
    """The mean of each algorithm with a band of one sd; a cross where a seed diverged."""
    quantity = QUANTITIES[metric]
    scale, log = quantity.factor, quantity.scale == "log" and _wide(run, metric)
    unit, label = x_axis(run, x)
    for index, (arm, style) in enumerate(zip(run.arms, inks(run.arms), strict=True)):
        (mean, sd), along = arm.band(metric), arm.band(x)[0] / unit
        line = {"color": style.colour, "zorder": 3 + 0.01 * index}
        ax.plot(along, scale * mean, linestyle=style.line, **line)
        if sd is not None:
            low = np.maximum(mean - sd, 0.1 * mean) if log else mean - sd
            ax.fill_between(
                along, scale * low, scale * (mean + sd), color=style.colour, alpha=0.14, linewidth=0
            )
        shared = arm.shared_rounds
        for seed, curve in arm.curves.items():
            alone = curve.rounds >= (shared[-1] if shared.size else 0)
            if alone.sum() > 1:  # this seed outlived another one: on its own from there
                ax.plot(curve[x][alone] / unit, scale * curve[metric][alone], linewidth=0.6, **line)
            if seed in arm.failures:
                ax.plot(*_end(curve[x] / unit, scale * curve[metric]), "x", markersize=5, **line)
    if metric == ACCURACY.metric and run.target is not None:
        ax.axhline(100 * run.target, color="#777777", linewidth=0.7, linestyle=(0, (2, 2)))
        ax.annotate(
            f"{percent(run.target)} %",
            xy=(1, 100 * run.target),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=6.5,
            color="#666666",
        )
    if log:
        ax.set_yscale("log")
    ax.set(xlabel=label, ylabel=quantity.full_title, title=title)
    ax.margins(x=0.01)
    ax.set_xlim(left=0)


def plot_partition(ax: Any, counts: NDArray[np.int64], title: str = "") -> None:
    """How the classes are spread over clients: dots for few clients, a heat map for many."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    shown = counts[:MOST_CLIENTS]
    clients, classes = shown.shape
    if clients <= 40 and classes <= 30:
        client, label = np.nonzero(shown)
        area = 110.0 * shown[client, label] / shown.max()
        ax.scatter(client, label, s=area, color=ink(0).colour, linewidths=0)
        ax.set(xlim=(-0.7, clients - 0.3), ylim=(-0.7, classes - 0.3))
    else:
        share = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
        most = float(share.max()) or 1.0
        image = ax.imshow(
            share.T, aspect="auto", origin="lower", cmap="Blues", interpolation="nearest",
            norm=PowerNorm(0.6, vmin=0, vmax=most),
        )  # fmt: skip
        ticks = np.asarray(MaxNLocator(5).tick_values(0, most))
        bar = ax.figure.colorbar(image, ax=ax, pad=0.015, fraction=0.04, ticks=ticks[ticks <= most])
        bar.set_label("Share of the client's samples")
        bar.outline.set_visible(False)
        ax.grid(visible=False)
    rest = f" (first {clients} of {len(counts)})" if clients < len(counts) else ""
    ax.set(xlabel=f"Client{rest}", ylabel="Class", title=title)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))


def x_axis(run: Run, x: str) -> tuple[float, str]:
    """The unit of an axis that suits the run, and its title."""
    unit, letter = prefix(run.largest(x) / 5) if QUANTITIES[x].prefixed else (1.0, "")
    return unit, QUANTITIES[x].axis_title(letter)


def _end(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The last point that has a value, or no point."""
    finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))[-1:]
    return x[finite], y[finite]


def _wide(run: Run, metric: str) -> bool:
    """Whether the values span so much that only a logarithmic axis shows them all."""
    values = np.concatenate([curve[metric] for curve in run.curves])
    values = values[np.isfinite(values)]
    return bool(values.size and values.min() > 0 and values.max() > 50 * np.median(values))


def _legend(figure: Any, run: Run) -> None:
    from matplotlib.lines import Line2D

    width = float(figure.get_size_inches()[0])
    handles = [
        Line2D([], [], color=style.colour, linestyle=style.line, label=visible(arm.label))
        for arm, style in zip(run.arms, inks(run.arms), strict=True)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=_legend_columns(run, width))


def visible(label: str) -> str:
    """matplotlib leaves labels that start with an underscore out of legends."""
    return printable(f" {label}" if label.startswith("_") else label)


def _legend_columns(run: Run, width: float) -> int:
    longest = max(len(arm.label) for arm in run.arms)
    fitting = max(1, int(width / (0.5 + 0.058 * longest)))
    return math.ceil(len(run.arms) / math.ceil(len(run.arms) / fitting))  # rows of equal length
