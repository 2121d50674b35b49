"""Drawing: curves, partitions and legends with matplotlib, in one style."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from undrift.later import np
from undrift.measure.quantities import QUANTITIES
from undrift.report.palette import ink, inks
from undrift.report.read import Arm, Run
from undrift.report.score import ACCURACY
from undrift.report.text import printable
from undrift.report.units import percent, prefix
from undrift.runs.columns import Floats
from undrift.runs.reading import LabelCounts

MOST_CLIENTS = 500
"""most clients that a plot of the partition shows"""

MOST_NAMES = 40
"""most clients or classes whose names stand at the axis of a partition"""

MOST_ABOVE = 6
"""most curves whose legend is above the panels; bands of more are paler"""

Draw = Callable[[Any], None]
"""draws into axes, or into a figure"""

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


@contextmanager
def styled() -> Iterator[None]:
    """Use our style, and restore that of the caller afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def draw_grid(figure: Any, panels: Sequence[Draw], columns: int) -> None:
    """Panels row by row; unused places in the last row stay empty."""
    axes = figure.subplots(math.ceil(len(panels) / columns), columns, squeeze=False).flat
    for ax, draw in zip(axes, panels, strict=False):
        draw(ax)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()


def plot_curves(ax: Any, run: Run, metric: str, x: str, title: str = "") -> None:
    """The curves of a run, with the target if there is one."""
    from matplotlib.ticker import MaxNLocator

    quantity = QUANTITIES[metric]
    log = quantity.scale == "log" and wide(np.concatenate([curve[metric] for curve in run.curves]))
    unit, label = x_axis(x, run.largest(x))
    draw_curves(ax, run.arms, metric, x, scale=quantity.factor, unit=unit, log=log)
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
    ax.set(xlabel=label, ylabel=quantity.full_title, title=title)
    ax.set_xlim(left=0)
    if x == "round":
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10]))


def draw_curves(
    ax: Any,
    arms: Sequence[Arm],
    metric: str,
    x: str,
    *,
    scale: float = 1.0,
    unit: float = 1.0,
    log: bool = False,
) -> None:
    """The mean of each algorithm with a band of one sd; a cross where a seed diverged.

    scale  factor of the values
    unit   divisor of the values on the x-axis
    """
    alpha = 0.14 if len(arms) <= MOST_ABOVE else 0.05
    for index, (arm, style) in enumerate(zip(arms, inks(arms), strict=True)):
        (mean, sd), along = arm.band(metric), arm.band(x)[0] / unit
        line = {"color": style.colour, "zorder": 3 + 0.01 * index}
        if mean.size:
            ax.plot(along, scale * mean, linestyle=style.line, **line)
        if sd is not None:
            low = np.maximum(mean - sd, 0.1 * mean) if log else mean - sd
            band = (along, scale * low, scale * (mean + sd))
            ax.fill_between(*band, color=style.colour, alpha=alpha, linewidth=0)
        shared = arm.shared_rounds
        for seed, curve in arm.curves.items():
            alone = curve.rounds >= (shared[-1] if shared.size else 0)
            if alone.sum() > 1:  # other seeds ended earlier, and the mean with them
                ax.plot(curve[x][alone] / unit, scale * curve[metric][alone], linewidth=0.6, **line)
            if seed in arm.failures:
                ax.plot(*_end(curve[x] / unit, scale * curve[metric]), "x", markersize=5, **line)
    if log:
        ax.set_yscale("log")
    ax.margins(x=0.01)


def plot_partition(ax: Any, labels: LabelCounts, title: str = "") -> None:
    """Class counts per client: dots for few clients, a heat map for many."""
    from matplotlib.colors import PowerNorm
    from matplotlib.ticker import MaxNLocator

    counts = labels.counts
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
    for axis, names in ((ax.xaxis, labels.clients), (ax.yaxis, labels.classes)):
        if 0 < len(names) <= MOST_NAMES:
            axis.set_ticks(range(len(names)), [_clipped(name) for name in names])
        else:
            axis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    if 10 < len(labels.clients) <= MOST_NAMES:
        ax.tick_params(axis="x", labelrotation=90)


def _clipped(name: str) -> str:
    return printable(name if len(name) <= 12 else f"{name[:11]}…").replace("$", r"\$")


def x_axis(x: str, largest: float) -> tuple[float, str]:
    """Unit and title of an x-axis whose largest value is given."""
    unit, letter = prefix(largest / 5) if QUANTITIES[x].prefixed else (1.0, "")
    return unit, QUANTITIES[x].axis_title(letter)


def _end(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The last finite point, or none."""
    finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))[-1:]
    return x[finite], y[finite]


def wide(values: Floats) -> bool:
    """Whether a linear axis would hide most values: the largest is over 50 times the median."""
    values = values[np.isfinite(values)]
    return bool(values.size and values.min() > 0 and values.max() > 50 * np.median(values))


def draw_legend(figure: Any, arms: Sequence[Arm]) -> None:
    """A legend above all panels; of many curves, one at the right, for which the figure widens."""
    lines = legend_lines(arms)
    if lines and len(arms) > MOST_ABOVE:
        width, height = figure.get_size_inches()
        figure.set_size_inches(width + _entry_width(arms), max(height, 0.3 + 0.155 * len(lines)))
        figure.legend(handles=lines, loc="outside right upper", borderpad=1)
    elif lines:
        columns = legend_columns(arms, float(figure.get_size_inches()[0]))
        figure.legend(handles=lines, loc="outside upper center", ncols=columns)


def _entry_width(arms: Sequence[Arm]) -> float:
    """The width of a legend entry in inches."""
    return 0.5 + 0.058 * max(len(arm.label) for arm in arms)


def legend_lines(arms: Sequence[Arm]) -> list[Any]:
    """Legend entries: one line per algorithm that has a label."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=style.colour, linestyle=style.line, label=_visible(arm.label))
        for arm, style in zip(arms, inks(arms), strict=True)
        if arm.label
    ]


def _visible(label: str) -> str:
    """The label for matplotlib, which leaves those with a leading underscore out of legends."""
    return printable(f" {label}" if label.startswith("_") else label)


def legend_columns(arms: Sequence[Arm], width: float) -> int:
    """Number of legend columns for a width in inches, with rows of equal length."""
    fitting = max(1, int(width / _entry_width(arms)))
    return math.ceil(len(arms) / math.ceil(len(arms) / fitting))


def legend_height(arms: Sequence[Arm], width: float) -> float:
    """Inches that a legend above the panels takes."""
    if len(arms) > MOST_ABOVE:
        return 0.0
    return 0.17 * math.ceil(len(arms) / legend_columns(arms, width))
