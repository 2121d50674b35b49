"""Scores: what algorithms are ranked by, and how it is printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from undrift.later import np
from undrift.measure.quantities import QUANTITIES, Quantity
from undrift.report.estimate import Bounds, Estimate

if TYPE_CHECKING:
    from undrift.report.read import Arm, TrialRecord
    from undrift.runs.columns import Floats


@dataclass(frozen=True)
class Score:
    """A result on the test set.

    quantity  the metric that it is computed from
    name      name in tables and sentences; `about` explains it
    gap       unit of differences
    scaled    note on the scale of its intervals, if that is not linear
    lower     whether less is better
    root      whether it is the square root of the metric
    bounds    smallest and largest possible value
    """

    quantity: Quantity
    name: str
    about: str
    gap: str = ""
    scaled: str = ""
    lower: bool = True
    root: bool = False
    bounds: Bounds | None = None

    @property
    def metric(self) -> str:
        """The name of the quantity."""
        return self.quantity.name

    @property
    def unit(self) -> str:
        return self.quantity.unit

    @property
    def gap_bounds(self) -> Bounds | None:
        """Bounds of the difference of two results."""
        return self.bounds and (self.bounds[0] - self.bounds[1], self.bounds[1] - self.bounds[0])

    @property
    def heading(self) -> str:
        """The name with the unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def of(self, curve: TrialRecord) -> Floats:
        """The results of a curve, round by round."""
        values = curve[self.metric]
        with np.errstate(invalid="ignore"):
            return np.sqrt(values) if self.root else values

    def along(self, arm: Arm) -> Floats:
        """The results of an algorithm, averaged over seeds, at the rounds that all evaluated."""
        shared = [np.isin(c.rounds, arm.shared_rounds) for c in arm.curves.values()]
        rows = [self.of(c)[there] for c, there in zip(arm.curves.values(), shared, strict=True)]
        return np.asarray(np.mean(rows, axis=0)) if rows else np.empty(0)

    def peak(self, curve: TrialRecord) -> float:
        """The best result; NaN if there is none."""
        values = self.of(curve)
        finite = values[np.isfinite(values)]
        if not finite.size:
            return math.nan
        return float(finite.min() if self.lower else finite.max())

    def rank(self, value: float) -> float:
        """A result, or a difference of two, with its sign such that higher is better."""
        return -value if self.lower else value

    def number(self, value: float, sign: str = "") -> str:
        """A result, or a difference of two, in a table."""
        return self.quantity.number(value, sign)

    def numbers(self, estimate: Estimate) -> str:
        """A mean, with its sd if it has one."""
        spread = "" if estimate.sd is None else f" ± {self.number(estimate.sd)}"
        return self.number(estimate.mean) + spread

    def said(self, text: str) -> str:
        """A number in a sentence: "80.83 %" or "RMSE 0.1234"."""
        return f"{text} {self.unit}" if self.unit else f"{self.name} {text}"


ACCURACY = Score(
    *(QUANTITIES["accuracy"], "accuracy", "Accuracy on the test set", "points"),
    scaled="Those of accuracies are taken on the logit scale, so they end within 0 and 100 %.",
    lower=False,
    bounds=(0.0, 1.0),
)
LOSS = Score(QUANTITIES["loss"], "loss", "Loss on the test set, where less is better")
RMSE = Score(
    QUANTITIES["loss"],
    "RMSE",
    "Root of the mean squared error on the test set, where less is better",
    scaled="Those of RMSEs are taken on the logarithmic scale, so they end above 0.",
    root=True,
    bounds=(0.0, math.inf),
)
