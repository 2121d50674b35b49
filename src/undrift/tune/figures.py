"""Figures of a study: best so far, slices, pairs, parallel coordinates, importances, rungs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from undrift.later import np
from undrift.report.palette import ink
from undrift.runs.columns import Floats
from undrift.tune.knobs import Knob
from undrift.tune.noise import half_width
from undrift.tune.page import Figure, log_scale
from undrift.tune.store import Record

if TYPE_CHECKING:
    from undrift.tune.outcome import Outcome
    from undrift.tune.running import Desk

MOST_PAIRS = 6
GRID, ALMOST = 60, 1 - 1e-9
"""points of a contour along each side; the share of a range that stands for its end"""
WIDTH = 0.25
"""of the kernel that contours are smoothed with, in parts of a range, for one trial"""
FEW = 8
"""fewest trials with all rounds from which importances are estimated"""

COSTS = {"rounds": "Rounds", "bytes": "Bytes", "flops": "FLOPs", "seconds": "Seconds"}
"""what a budget may limit → its name on an axis"""

FAILED = "#B22222"
"""colour of trials that failed"""

Value = Callable[[Record], float | None]


def figures(here: Desk, found: list[Outcome]) -> list[Figure]:
    """The figures that there are data for."""
    drawer = Drawer(here)
    sound = [one for one in found if any(map(drawer.value, one.records))]
    if not sound:
        return []
    unit = here.score.heading
    made = [
        Figure(
            "Best so far",
            f"The best validation {unit} found, against what the trials have used.",
            [partial(drawer.best_so_far, found=found)],
            wide=6.2,
        ),
    ]
    if any(one.chosen for one in found):
        made.append(
            Figure(
                "Validation clients",
                "Half of the 95 % interval of the best result over validation clients, for as many "
                "as there are (dots), and for more or fewer: it falls with the root of the number.",
                [partial(drawer.clients, found=found)],
                wide=6.2,
            )
        )
    for one in sound:
        label, knobs = one.arm.label, one.arm.knobs
        made.append(
            Figure(
                f"{label}: one setting at a time",
                "Each dot is a trial, the star the winner, each cross one that failed; triangles "
                "at the edge are far worse."
                + " Pale dots were stopped early by halving."
                * (len(here.study.rungs) > 1),
                [partial(drawer.slice, one=one, knob=knob) for knob in knobs],
            )
        )
        pairs = list(combinations(knobs, 2))[:MOST_PAIRS]
        if pairs:
            made.append(
                Figure(
                    f"{label}: two settings at a time",
                    "Darker is better; the worse half of the trials has the palest colour. Areas "
                    "are a smooth mean over the trials, which are the dots (crosses: failed). A "
                    "ridge that is not along an axis says that two settings must be chosen "
                    "together.",
                    [partial(drawer.pair, one=one, pair=pair) for pair in pairs],
                )
            )
            made.append(
                Figure(
                    f"{label}: all settings",
                    "Each line is a trial, through its place in the range of each setting; darker "
                    "is better.",
                    [partial(drawer.parallel, one=one)],
                    wide=6.2,
                )
            )
        if weights := importances(here, one):
            made.append(
                Figure(
                    f"{label}: importances",
                    "Share of the variation among the better trials that a setting explains "
                    "(PED-ANOVA); with few trials, a hint.",
                    [partial(drawer.bars, weights=weights)],
                    wide=4.0,
                )
            )
    if len(here.study.rungs) > 1:
        panels = [partial(drawer.rungs, one=one) for one in sound]
        said = (
            "Validation results of each trial at the rungs of the halving. If lines cross much "
            "between two rungs, the first is too short to choose by: give more --min-rounds."
        )
        made.append(Figure("Rungs", said, panels))
    return made


def importances(here: Desk, one: Outcome) -> dict[str, float]:
    """Setting → importance; empty if there are too few trials."""
    optuna = here.store.optuna
    rounds = here.study.rungs[-1]
    done = [record for record in one.records if rounds in record.results]
    if len(done) < FEW or len(one.arm.knobs) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.load_study(study_name=one.arm.label, storage=here.store.storage)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        try:
            return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))
        except (ValueError, RuntimeError):  # too few complete trials, or all alike
            return {}


class Drawer:
    """Draws into axes."""

    def __init__(self, here: Desk) -> None:
        self.here, self.factor = here, here.score.quantity.factor
        self.unit = f"Validation {here.score.heading}"

    def value(self, record: Record) -> float | None:
        """The last result, as it is shown."""
        last = record.last
        return None if last is None or last.objective is None else self.factor * last.objective

    def best_so_far(self, ax: Any, found: list[Outcome]) -> None:
        for place, one in enumerate(found):
            spent, top, xs, ys = 0.0, math.nan, list[float](), list[float]()
            for record in one.records:
                spent += record.last.cost[self.here.study.limit[0]] if record.last else 0.0
                value = self.value(record)
                if value is not None:
                    better = min if self.here.lower else max
                    top = value if math.isnan(top) else better(top, value)
                xs.append(spent)
                ys.append(top)
            style = ink(place)
            ax.step(xs, ys, where="post", color=style.colour, linestyle=style.line,
                    label=one.arm.label)  # fmt: skip
        what = self.here.study.limit[0]
        ax.set(xlabel=f"{COSTS[what]} of all trials", ylabel=self.unit)
        _legend(ax)

    def clients(self, ax: Any, found: list[Outcome]) -> None:
        for place, one in enumerate(found):
            if one.chosen is None:
                continue
            counts = np.geomspace(max(2, one.chosen.n / 4), 16 * one.chosen.n, 30)
            style, now = ink(place), self.factor * half_width(one.chosen)
            ys = now * np.sqrt(one.chosen.n / counts)
            ax.plot(counts, ys, color=style.colour, linestyle=style.line, label=one.arm.label)
            ax.plot([one.chosen.n], [now], "o", color=style.colour, markersize=4)
        log_scale(ax, "x")
        gap = self.here.score.gap or self.here.score.name
        ax.set(xlabel="Validation clients, of all seeds", ylabel=f"Half of the interval ({gap})")
        ax.set_ylim(bottom=0)
        _legend(ax)

    def slice(self, ax: Any, one: Outcome, knob: Knob) -> None:
        rounds = self.here.study.rungs[-1]
        known = [value for record in one.records if (value := self.value(record)) is not None]
        worst = _floor(known, self.here.lower)
        for record in one.records:
            x, value, whole = _x(knob, record), self.value(record), rounds in record.results
            style: dict[str, Any] = {"color": ink(0).colour, "alpha": 1 if whole else 0.3}
            if value is None:
                ax.plot([x], [worst], "x", color=FAILED, markersize=4, clip_on=False)
            elif (value - worst) * (-1 if self.here.lower else 1) < 0:
                mark = "^" if self.here.lower else "v"
                ax.plot([x], [worst], mark, **style | {"alpha": 0.5}, markersize=4, clip_on=False)
            else:
                won = record is one.winner
                ax.plot([x], [value], "*" if won else "o", **style, markersize=8 if won else 3.5,
                        clip_on=False)  # fmt: skip
        _axis(ax, "x", knob)
        ax.set(ylabel=self.unit)
        ax.set_ylim(**{"top" if self.here.lower else "bottom": worst})

    def pair(self, ax: Any, one: Outcome, pair: tuple[Knob, Knob]) -> None:
        shown = [(record, value) for record in one.records
                 if (value := self.value(record)) is not None]  # fmt: skip
        levels = _levels([value for _, value in shown], self.here.lower)
        values = np.clip([value for _, value in shown], levels[0], levels[-1])
        colours = {"cmap": "Blues_r" if self.here.lower else "Blues", "extend": "both"}
        image = None
        if all(knob.space.kind != "values" for knob in pair) and len(shown) >= FEW:
            places = np.array([[knob.space.share(record.settings[knob.name]) for knob in pair]
                               for record, _ in shown])  # fmt: skip
            sides = np.linspace(0, 1, GRID)
            xs, ys = ([knob.space.at(min(side, ALMOST)) for side in sides] for knob in pair)
            image = ax.contourf(xs, ys, smooth(places, values, sides), levels, **colours)
        dots = ax.scatter(
            [_x(pair[0], record) for record, _ in shown],
            [_x(pair[1], record) for record, _ in shown],
            c=values,
            cmap=colours["cmap"],
            vmin=levels[0],
            vmax=levels[-1],
            edgecolors="#444444",
            linewidths=0.5,
            s=18,
        )
        failed = [record for record in one.records if self.value(record) is None]
        ax.plot([_x(pair[0], record) for record in failed],
                [_x(pair[1], record) for record in failed],
                "x", color=FAILED, markersize=4)  # fmt: skip
        bar = ax.figure.colorbar(image or dots, ax=ax, fraction=0.05, format="%.4g")
        bar.outline.set_visible(False)
        _axis(ax, "x", pair[0])
        _axis(ax, "y", pair[1])

    def parallel(self, ax: Any, one: Outcome) -> None:
        knobs = one.arm.knobs
        shown = [(record, value) for record in one.records
                 if (value := self.value(record)) is not None]  # fmt: skip
        low, high = (f(value for _, value in shown) for f in (min, max))
        for record, value in shown:
            share = (value - low) / (high - low) if high > low else 1.0
            share = 1 - share if self.here.lower else share
            ys = [knob.space.share(record.settings[knob.name]) for knob in knobs]
            ax.plot(range(len(knobs)), ys, color=ink(0).colour, alpha=0.08 + 0.9 * share**2)
        ends = [f"{knob.name}\n{knob.space.ends[0]} … {knob.space.ends[-1]}" for knob in knobs]
        ax.set_xticks(range(len(knobs)), ends)
        ax.set(ylabel="Place in the range", ylim=(-0.05, 1.05))

    def bars(self, ax: Any, weights: dict[str, float]) -> None:
        names = list(weights)[::-1]
        ax.barh(names, [weights[name] for name in names], color=ink(0).colour, height=0.6)
        ax.set(xlabel="Importance", xlim=(0, 1))

    def rungs(self, ax: Any, one: Outcome) -> None:
        rungs = self.here.study.rungs
        for record in one.records:
            known = [(r, result.objective) for r, result in sorted(record.results.items())
                     if result.objective is not None]  # fmt: skip
            style = ink(0).colour if record is one.winner else "#777777"
            ax.plot([r for r, _ in known], [self.factor * value for _, value in known], "o-",
                    color=style, alpha=0.9 if rungs[-1] in record.results else 0.35,
                    markersize=3, linewidth=1)  # fmt: skip
        log_scale(ax, "x")
        there = [sum(rung in record.results for record in one.records) for rung in rungs]
        ax.set_xticks(rungs, [f"{rung}\n{n} trials" for rung, n in zip(rungs, there, strict=True)])
        ax.set_xticks([], minor=True)
        ax.set(xlabel="Rounds", ylabel=self.unit, title=one.arm.label)


def smooth(places: Floats, values: Floats, sides: Floats) -> Floats:
    """Mean of the values at each point of a grid in the unit square, by a Gaussian kernel.

    places  of the values, shape (values, 2)
    """
    wide = WIDTH * len(values) ** (-1 / 6)
    near = [np.exp(-0.5 * ((sides[:, None] - places[:, k]) / wide) ** 2) for k in (0, 1)]
    weights = near[1][:, None, :] * near[0][None, :, :]
    return np.asarray((weights * values).sum(2) / weights.sum(2))


def _floor(values: list[float], lower: bool) -> float:
    """The worst result that a figure has room for: the middle four times as far off."""
    best, worst = (min, max) if lower else (max, min)
    top = best(values)
    far = top + 4 * (float(np.median(values)) - top)
    return (min if lower else max)(worst(values), far)


def _levels(values: list[float], lower: bool) -> Floats:
    """Levels of colour from the middle of the values to the best."""
    middle, best = float(np.median(values)), min(values) if lower else max(values)
    low, high = sorted((middle, best))
    return np.linspace(low, high if high > low else low + 1e-6, 9)


def _legend(ax: Any) -> None:
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02))


def _x(knob: Knob, record: Record) -> Any:
    value = record.settings[knob.name]
    return str(value) if knob.space.kind == "values" else value


def _axis(ax: Any, which: str, knob: Knob) -> None:
    """Name and scale of an axis with a setting."""
    getattr(ax, f"set_{which}label")(knob.name)
    if knob.space.kind == "log":
        log_scale(ax, which)
    if knob.space.kind == "int":
        getattr(ax, f"{which}axis").get_major_locator().set_params(integer=True)
    if knob.space.kind != "values":
        edges = [knob.space.at(share) for share in (0, ALMOST)]
        getattr(ax, f"set_{which}lim")(*edges)
