"""Measures: what a paper reads off a trial's curve, as one number."""

from __future__ import annotations

import math
from dataclasses import dataclass

from undrift.config import Config, UndriftError, text, unknown, whole
from undrift.config.expressions import parse
from undrift.later import np
from undrift.measure.quantities import QUANTITIES, Quantity
from undrift.report.estimate import Bounds
from undrift.report.read import TrialRecord


@dataclass(frozen=True)
class Measure(Config):
    """A number from the curve of a trial; NaN if the curve does not have it."""

    metric: str = text()

    def __post_init__(self) -> None:
        super().__post_init__()
        known(self.metric)

    @property
    def quantity(self) -> Quantity:
        return QUANTITIES[self.metric]

    @property
    def factor(self) -> float:
        """Factor from stored values to printed ones: 100 for shares in per cent."""
        return self.quantity.factor

    @property
    def unit(self) -> str:
        return self.quantity.unit

    @property
    def bounds(self) -> Bounds | None:
        """Smallest and largest possible number, in printed units."""
        return (0.0, 100.0) if self.unit == "%" else None

    def of(self, curve: TrialRecord) -> float:
        """The number."""
        raise NotImplementedError

    def at(self, curve: TrialRecord, round: int) -> float:
        """The metric after a round; NaN if it was not evaluated."""
        found = curve[self.metric][curve.rounds == round]
        return float(found[-1]) if found.size else math.nan


@dataclass(frozen=True)
class Last(Measure):
    """The metric after the last round."""

    def of(self, curve: TrialRecord) -> float:
        return float(curve[self.metric][-1])


@dataclass(frozen=True)
class At(Measure):
    """The metric after one round."""

    round: int = whole(ge=1)

    def of(self, curve: TrialRecord) -> float:
        return self.at(curve, self.round)


@dataclass(frozen=True)
class Mean(Measure):
    """The mean over the evaluations of the last `rounds` rounds; of all, if not given: how fast."""

    rounds: int | None = whole(None, ge=1, optional=True)

    def of(self, curve: TrialRecord) -> float:
        first = 0 if self.rounds is None else curve.rounds[-1] - self.rounds
        return float(curve[self.metric][curve.rounds > first].mean())


@dataclass(frozen=True)
class Best(Measure):
    """The largest value."""

    def of(self, curve: TrialRecord) -> float:
        return float(np.nanmax(curve[self.metric]))


class Plain(Measure):
    """Base of the measures that have no unit."""

    @property
    def factor(self) -> float:
        return 1.0

    @property
    def unit(self) -> str:
        return ""


@dataclass(frozen=True)
class Growth(Plain):
    """The last value divided by that after a round."""

    since: int = whole(ge=1)

    def of(self, curve: TrialRecord) -> float:
        return float(curve[self.metric][-1]) / self.at(curve, self.since)


@dataclass(frozen=True)
class Fall(Measure):
    """How much less the metric is after a round than before it."""

    round: int = whole(ge=2)

    @property
    def unit(self) -> str:
        return "points" if self.quantity.unit == "%" else self.quantity.unit

    def of(self, curve: TrialRecord) -> float:
        return self.at(curve, self.round - 1) - self.at(curve, self.round)


@dataclass(frozen=True)
class Spread(Plain):
    """The standard deviation over the evaluations."""

    def of(self, curve: TrialRecord) -> float:
        return float(np.std(curve[self.metric], ddof=1)) if len(curve.rounds) > 1 else math.nan


@dataclass(frozen=True)
class Pair(Plain):
    """Base of the measures of two metrics."""

    other: str = text()

    def __post_init__(self) -> None:
        super().__post_init__()
        known(self.other)

    def pair(self, curve: TrialRecord) -> np.ndarray:
        """Both metrics, in the evaluations that have both."""
        pair = np.array([curve[self.metric], curve[self.other]])
        return pair[:, np.isfinite(pair).all(axis=0)]


@dataclass(frozen=True)
class Correlation(Pair):
    """Pearson's correlation with another metric, over the evaluations."""

    def of(self, curve: TrialRecord) -> float:
        pair = self.pair(curve)
        if pair.shape[1] < 3 or not pair.std(axis=1).all():
            return math.nan
        return float(np.corrcoef(pair)[0, 1])


@dataclass(frozen=True)
class Distance(Pair):
    """Relative distance from another metric, |a − b| / |b|; mean over the evaluations."""

    def of(self, curve: TrialRecord) -> float:
        a, b = self.pair(curve)
        return float((np.abs(a - b) / np.abs(b)).mean()) if len(a) else math.nan


@dataclass(frozen=True)
class Apart(Plain):
    """Largest over smallest value of a list, such as one of parameter groups; mean over rounds."""

    def of(self, curve: TrialRecord) -> float:
        values = curve.lists.get(self.metric)
        if values is None or not values.size:
            return math.nan
        return float((values.max(axis=1) / values.min(axis=1)).mean())


MEASURES = {
    made.__name__: made
    for made in (Last, At, Mean, Best, Growth, Fall, Spread, Correlation, Distance, Apart)
}


def known(name: str) -> None:
    """Raise unless there is a quantity of this name."""
    if name not in QUANTITIES:
        raise UndriftError(unknown("quantity", name, QUANTITIES))


def measure(expression: str) -> Measure:
    """The measure with this text, such as "Last('accuracy')"."""
    made = parse(expression, MEASURES, "measure") if isinstance(expression, str) else None
    if not isinstance(made, Measure):
        raise UndriftError(f"{expression!r} is not a measure, such as Last('accuracy')")
    return made
