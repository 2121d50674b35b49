"""Panels: the interactive curves of the page and the data behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.report.figures import MOST_CLIENTS
from undrift.report.palette import ink
from undrift.report.read import METRICS, Arm, Floats, Run
from undrift.report.units import prefix

MOST_POINTS = 500
"""points that an interactive curve has at most; longer runs are thinned evenly"""


@dataclass(frozen=True)
class Panel:
    """One plot: which metric, how its axis is called and what a reader should look for."""

    metric: str
    title: str
    axis: str
    caption: str
    digits: str = ".4~g"
    models: bool = False
    positive: bool = False
    wide: bool = False


SECTIONS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Learning",
        (
            Panel(
                "accuracy",
                "Accuracy",
                "Test accuracy (%)",
                "Of the model each algorithm deploys, unless another is chosen above.",
                digits=".2f",
                models=True,
                wide=True,
            ),
            Panel(
                "loss",
                "Test loss",
                "Test loss",
                "Of the same model.",
                models=True,
                positive=True,
            ),
            Panel(
                "train_loss",
                "Training loss",
                "Training loss",
                "Mean over the local steps of the cohort.",
                positive=True,
            ),
        ),
    ),
    (
        "Stability",
        (
            Panel(
                "x_norm",
                "Norm of the model",
                "‖x‖",
                "Euclidean norm of the server's parameters.",
                positive=True,
            ),
            Panel(
                "h_norm",
                "Norm of the correction",
                "‖h‖",
                "The server's estimate of the drift; only for algorithms that keep one.",
                positive=True,
            ),
            Panel(
                "h_cosine",
                "Aim of the correction",
                "cos(h, mean update)",
                "Cosine of h and the mean update of the round after it.",
                digits=".3f",
            ),
            Panel(
                "drift",
                "Client drift",
                "RMS distance",
                "Root mean square distance of the clients' models from their mean.",
                positive=True,
            ),
        ),
    ),
    (
        "Cohorts",
        (
            Panel(
                "gsi",
                "Diversity of the updates",
                "GSI",
                "FedGLAD's similarity indicator: 1 when all updates agree.",
            ),
            Panel(
                "factor",
                "Factor of FedGLAD",
                "Factor",
                "Mean over parameter groups; only for algorithms that rescale.",
                digits=".3f",
            ),
            Panel(
                "label_similarity",
                "Labels of the cohort",
                "Cosine similarity",
                "Label distribution of the cohort against that of all clients.",
                digits=".3f",
            ),
            Panel(
                "delivered",
                "Updates delivered",
                "Updates per round",
                "Clients whose update arrived.",
            ),
            Panel(
                "dropped",
                "Updates lost",
                "Updates in total",
                "Clients that failed to deliver, counted from the start.",
            ),
        ),
    ),
)


def panel_data(run: Run) -> dict[str, Any]:
    """All that the page's script draws from; values are rounded to six digits."""
    axes = _axes(run)
    recorded = [metric for metric in METRICS if run.recorded(metric)]
    scales = {metric: 100.0 if "accuracy" in metric else 1.0 for metric in recorded}
    scales |= {x: 1 / unit for x, (unit, _) in axes.items()}
    return {
        "arms": [_arm(index, arm, scales) for index, arm in enumerate(run.arms)],
        "axes": {x: {"title": title} for x, (_, title) in axes.items()},
        "switches": _switches(run, axes),
        "target": None if run.target is None else round(100 * run.target, 4),
        "partitions": [_partition(counts) for counts in run.partitions.values()],
    }


def _arm(index: int, arm: Arm, scales: dict[str, float]) -> dict[str, Any]:
    style, shared = ink(index), arm.shared_rounds()
    bands = {metric: arm.band(metric) for metric in scales}
    keep = _thin(shared.size)
    seeds = []
    for seed, curve in arm.curves.items():
        kept = _thin(curve.rounds.size)
        alone = curve.rounds[kept] >= (shared[-1] if shared.size else 0)
        seeds.append(
            {
                "seed": seed,
                "alone": int(np.argmax(alone)),
                "values": {m: _numbers(scale * curve[m][kept]) for m, scale in scales.items()},
                "diverged": seed in arm.verdicts,
            }
        )
    means = {m: _numbers(scales[m] * mean[keep]) for m, (mean, _) in bands.items() if mean.size}
    spreads = {m: _numbers(scales[m] * sd[keep]) for m, (_, sd) in bands.items() if sd is not None}
    return {
        "name": arm.name,
        "label": arm.label,
        "colour": style.colour,
        "dark": style.dark,
        "dash": style.dash,
        "mean": means,
        "sd": spreads or None,
        "seeds": seeds,
    }


def _axes(run: Run) -> dict[str, tuple[float, str]]:
    """Axis → unit and title."""
    axes = {"round": (1.0, "Round")}
    for x, words, symbol in (
        ("bytes", "Traffic of all clients, down and up", "B"),
        ("flops", "Compute of all clients", "FLOP"),
    ):
        if run.recorded(x):
            unit, letter = prefix(run.largest(x) / 5)
            axes[x] = (unit, f"{words} ({letter}{symbol})")
    if run.recorded("seconds"):
        axes["seconds"] = (1.0, "Time of the simulation (s)")
    return axes


def _switches(run: Run, axes: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices above the plots; one with a single option is left out."""
    names = {"round": "Rounds", "bytes": "Traffic", "flops": "Compute", "seconds": "Seconds"}
    models = {"cloud": "Cloud", "aggregate": "Aggregate", "all": "All clients"}
    groups: list[tuple[str, str, list[tuple[str, str]]]] = [
        ("x", "x-axis", [(x, names[x]) for x in axes]),
        (
            "model",
            "Model",
            [
                ("deployed", "Deployed"),
                *((m, name) for m, name in models.items() if run.recorded(f"{m}_accuracy")),
            ],
        ),
        (
            "lines",
            "Lines",
            [("mean", "Mean ± sd"), ("seeds", "Seeds")] if len(run.seeds) > 1 else [],
        ),
        ("scale", "Scale", [("auto", "Auto"), ("linear", "Linear"), ("log", "Log")]),
    ]
    return [
        {"key": key, "title": title, "options": options}
        for key, title, options in groups
        if len(options) > 1
    ]


def _partition(counts: NDArray[np.int64]) -> dict[str, Any]:
    shown = counts[:MOST_CLIENTS]
    share = 100 * shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    rest = f" (first {len(shown)} of {len(counts)})" if len(shown) < len(counts) else ""
    return {
        "counts": shown.T.tolist(),
        "share": [_numbers(row, digits=3) for row in share.T],
        "title": f"Client{rest}",
    }


def _thin(points: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, points - 1, min(points, MOST_POINTS)).round().astype(np.int64))


def _numbers(values: Floats | Sequence[float], digits: int = 6) -> list[float | int | None]:
    """Values for JSON: no more digits than a plot shows, null for no value."""

    def number(value: float) -> float | int | None:
        if not math.isfinite(value):
            return None
        short = float(f"{value:.{digits}g}")
        return int(short) if short == int(short) else short

    return [number(float(value)) for value in values]
