"""The data of the page's interactive plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from undrift.later import NDArray, np
from undrift.measure.quantities import (
    AXES,
    BALANCED,
    BY_GROUP,
    LISTS,
    METRICS,
    MODEL_TITLES,
    QUANTITIES,
)
from undrift.report.clients import ClientTable, client_tables
from undrift.report.drawing import MOST_CLIENTS, x_axis
from undrift.report.palette import Ink, inks
from undrift.report.read import Arm, Run
from undrift.runs.columns import Floats
from undrift.runs.reading import LabelCounts

MOST_POINTS = 500
"""most points per curve; longer runs are thinned evenly"""

MOST_COLUMNS = 200
"""most rounds in a plot of lists of values"""


def panel_data(run: Run) -> dict[str, Any]:
    """All data that the scripts draw, rounded to six digits."""
    shown = [x for x in AXES if x == "round" or run.recorded(x)]  # the page needs one axis
    axes = {x: x_axis(x, run.largest(x)) for x in shown}
    recorded = [metric for metric in METRICS if run.recorded(metric)]
    scales = {metric: QUANTITIES[metric].factor for metric in recorded}
    scales |= {x: 1 / unit for x, (unit, _) in axes.items()}
    return {
        "arms": [
            _arm(arm, style, scales, axes)
            for arm, style in zip(run.arms, inks(run.arms), strict=True)
        ],
        "axes": {x: {"title": title} for x, (_, title) in axes.items()},
        "switches": _switches(run, axes),
        "target": None if run.target is None else round(100 * run.target, 4),
        "by_group": BY_GROUP,
        "balanced": BALANCED,
        "clients": [_clients(table) for table in client_tables(run)],
        "partitions": [_partition(labels) for labels in run.partitions.values()],
    }


def _arm(arm: Arm, style: Ink, scales: Mapping[str, float], axes: Iterable[str]) -> dict[str, Any]:
    shared = arm.shared_rounds
    bands = {metric: arm.band(metric) for metric in scales}
    keep = _thin(shared.size, MOST_POINTS)
    seeds = []
    for seed, curve in arm.curves.items():
        kept = _thin(curve.rounds.size, MOST_POINTS)
        alone = curve.rounds[kept] >= (shared[-1] if shared.size else 0)
        seeds.append(
            {
                "seed": seed,
                "alone": int(np.argmax(alone)),
                "values": {m: _numbers(scale * curve[m][kept]) for m, scale in scales.items()},
                "diverged": seed in arm.failures,
            }
        )
    means = {m: _numbers(scales[m] * mean[keep]) for m, (mean, _) in bands.items() if mean.size}
    spreads = {m: _numbers(scales[m] * sd[keep]) for m, (_, sd) in bands.items() if sd is not None}
    return {
        "name": arm.name,
        "label": arm.label,
        "run": arm.run,
        "colour": style.colour,
        "dark": style.dark,
        "dash": style.dash,
        "mean": means,
        "sd": spreads or None,
        "seeds": seeds,
        "groups": group_names(arm),
        "sheets": _sheets(arm, {x: scales[x] for x in axes}),
    }


def _sheets(arm: Arm, axes: Mapping[str, float]) -> dict[str, Any]:
    """Lists of values: one line per position in the list, and their shared x-axes."""
    keep = _thin(arm.shared_rounds.size, MOST_COLUMNS)
    found = {name: arm.sheet(name) for name in LISTS}
    lines = {
        name: [_numbers(line) for line in QUANTITIES[name].factor * sheet[keep].T]
        for name, sheet in found.items()
        if sheet is not None
    }
    along = {x: _numbers(scale * arm.band(x)[0][keep]) for x, scale in axes.items()}
    return {"x": along, **lines} if lines else {}


def group_names(arm: Arm) -> list[str]:
    """Names of the parameter groups that FedGLAD distinguishes."""
    sheets = [arm.sheet(name) for name in BY_GROUP.values()]
    count = max((sheet.shape[1] for sheet in sheets if sheet is not None), default=0)
    if count == len(arm.groups):
        return list(arm.groups)
    return ["all parameters"] if count == 1 else [f"group {i}" for i in range(1, count + 1)]


def _switches(run: Run, axes: dict[str, Any]) -> list[dict[str, Any]]:
    """The switches above the plots, without those that have a single option."""
    groups: list[tuple[str, str, list[tuple[str, str]]]] = [
        ("x", "x-axis", [(x, QUANTITIES[x].title) for x in axes]),
        (
            "model",
            "Model",
            [
                ("deployed", "Deployed"),
                *((m, name) for m, name in MODEL_TITLES.items() if run.recorded(f"{m}_loss")),
            ],
        ),
        (
            "accuracy",
            "Accuracy",
            [("plain", "All samples"), ("balanced", "Balanced")]
            if run.recorded("balanced_accuracy")
            else [],
        ),
        (
            "lines",
            "Lines",
            [("mean", "Mean ± sd"), ("seeds", "Seeds")] if len(run.seeds) > 1 else [],
        ),
        ("smooth", "Smoothing", [("none", "None"), ("some", "Some"), ("much", "Much")]),
        ("scale", "Scale", [("auto", "Auto"), ("linear", "Linear"), ("log", "Log")]),
    ]
    return [
        {"key": key, "title": title, "options": options}
        for key, title, options in groups
        if len(options) > 1
    ]


def _clients(table: ClientTable) -> dict[str, Any]:
    def line(values: Mapping[str, float], scale: float = 1.0) -> list[float | int | None]:
        return _numbers([scale * values.get(client, math.nan) for client in table.clients])

    return {
        "clients": list(table.clients),
        "sizes": [line(sizes) for sizes in table.sizes],
        "columns": [
            {
                "arm": one.place,
                "personal": one.personal,
                "values": line(one.values, one.quantity.factor),
                "digits": 1 if one.quantity.share else 3,
            }
            for one in table.columns
        ],
    }


def _partition(labels: LabelCounts) -> dict[str, Any]:
    counts = labels.counts
    shown = counts[:MOST_CLIENTS]
    share = 100 * shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    rest = f" (first {len(shown)} of {len(counts)})" if len(shown) < len(counts) else ""
    return {
        "counts": shown.T.tolist(),
        "share": [_numbers(row, digits=3) for row in share.T],
        "title": f"Client{rest}",
        "clients": list(labels.clients[:MOST_CLIENTS]),
        "classes": list(labels.classes),
        "most": _numbers([share.max()], digits=3)[0] or 100,
    }


def _thin(points: int, most: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, points - 1, min(points, most)).round().astype(np.int64))


def _numbers(values: Floats | Sequence[float], digits: int = 6) -> list[float | int | None]:
    """Values for JSON: rounded, and null for no value."""

    def number(value: float) -> float | int | None:
        if not math.isfinite(value):
            return None
        short = float(f"{value:.{digits}g}")
        return int(short) if short == int(short) else short

    return [number(float(value)) for value in values]
