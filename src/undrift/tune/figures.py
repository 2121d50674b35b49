"""Figures of a study: best so far, slices, pairs, parallel coordinates, importances, rungs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from undrift.report.palette import ink
from undrift.tune.knobs import Knob
from undrift.tune.page import Figure, log_scale
from undrift.tune.store import Record

if TYPE_CHECKING:
    from undrift.tune.outcome import Outcome
    from undrift.tune.running import Desk

MOST_PAIRS = 6
FEW = 8
"""fewest trials with all rounds from which importances are estimated"""

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
            f"The best validation {unit} found, against the rounds that the trials have used.",
            [partial(drawer.best_so_far, found=found)],
            wide=5.2,
        ),
    ]
    for one in sound:
        label, knobs = one.arm.label, one.arm.knobs
        made.append(
            Figure(
                f"{label}: one setting at a time",
                "Each dot is a trial, each cross one that failed; the star is the winner. Pale "
                "dots were stopped early by halving.",
                [partial(drawer.slice, one=one, knob=knob) for knob in knobs],
            )
        )
        pairs = list(combinations(knobs, 2))[:MOST_PAIRS]
        if pairs:
            made.append(
                Figure(
                    f"{label}: two settings at a time",
                    "Darker is better. A ridge that is not along an axis says that two settings "
                    "must be chosen together.",
                    [partial(drawer.pair, one=one, pair=pair) for pair in pairs],
                )
            )
            made.append(
                Figure(
                    f"{label}: all settings",
                    "Each line is a trial, through its place in the range of each setting; darker "
                    "is better.",
                    [partial(drawer.parallel, one=one)],
                    wide=5.2,
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
        made.append(
            Figure("Rungs", "Validation results of each trial at the rungs of the halving.", panels)
        )
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
                spent += record.last.cost["rounds"] if record.last else 0.0
                value = self.value(record)
                if value is not None:
                    better = min if self.here.lower else max
                    top = value if math.isnan(top) else better(top, value)
                xs.append(spent)
                ys.append(top)
            style = ink(place)
            ax.step(xs, ys, where="post", color=style.colour, linestyle=style.line,
                    label=one.arm.label)  # fmt: skip
        ax.set(xlabel="Rounds of all trials", ylabel=self.unit)
        ax.legend()

    def slice(self, ax: Any, one: Outcome, knob: Knob) -> None:
        rounds = self.here.study.rungs[-1]
        values = [value for record in one.records if (value := self.value(record)) is not None]
        for record in one.records:
            x, value = _x(knob, record), self.value(record)
            if value is None:
                worst = max(values) if self.here.lower else min(values)
                ax.plot([x], [worst], "x", color="#999999", markersize=4)
            else:
                whole = rounds in record.results
                mark = "*" if record is one.winner else "o"
                ax.plot([x], [value], mark, color=ink(0).colour, alpha=1 if whole else 0.3,
                        markersize=8 if record is one.winner else 3.5)  # fmt: skip
        _axis(ax, "x", knob)
        ax.set(ylabel=self.unit)

    def pair(self, ax: Any, one: Outcome, pair: tuple[Knob, Knob]) -> None:
        shown = [record for record in one.records if self.value(record) is not None]
        points = [(_x(pair[0], record), _x(pair[1], record)) for record in shown]
        image = ax.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            c=[self.value(record) for record in shown],
            cmap="Blues_r" if self.here.lower else "Blues",
            edgecolors="#444444",
            linewidths=0.4,
            s=26,
        )
        bar = ax.figure.colorbar(image, ax=ax, fraction=0.05, format="%.4g")
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
        for record in one.records:
            known = [(r, result.objective) for r, result in sorted(record.results.items())
                     if result.objective is not None]  # fmt: skip
            ax.plot([r for r, _ in known], [self.factor * value for _, value in known], "o-",
                    color=ink(0).colour, alpha=0.5, markersize=3)  # fmt: skip
        ax.set(xlabel="Rounds", ylabel=self.unit, title=one.arm.label)


def _x(knob: Knob, record: Record) -> Any:
    value = record.settings[knob.name]
    return str(value) if knob.space.kind == "values" else value


def _axis(ax: Any, which: str, knob: Knob) -> None:
    """Name and scale of an axis with a setting."""
    getattr(ax, f"set_{which}label")(knob.name)
    if knob.space.kind == "log":
        log_scale(ax, which)
