"""Summary: what each algorithm reached, what it cost, and how it does against the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from undrift.config import UndriftError, unknown
from undrift.report.read import Arm, Curve, Run
from undrift.report.student import quantile


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds; sd (ddof=1) is None for one seed."""

    mean: float
    sd: float | None
    n: int

    @staticmethod
    def of(values: Sequence[float]) -> Estimate | None:
        """The estimate from all finite values; None if there are none."""
        finite = [float(value) for value in values if math.isfinite(value)]
        if not finite:
            return None
        sd = float(np.std(finite, ddof=1)) if len(finite) > 1 else None
        return Estimate(float(np.mean(finite)), sd, len(finite))

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean (Student's t); None for one seed."""
        if self.sd is None:
            return None
        half = quantile(self.n - 1) * self.sd / math.sqrt(self.n)
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Row:
    """One algorithm of the final table. Accuracies are shares; costs are totals of all clients.

    final       accuracy in the last round, over the seeds that got there
    behind      the leader's final accuracy minus this one's, seed by seed; None for the leader
    tail        accuracy averaged over the last tenth of the evaluated rounds, over those seeds
    peak        the highest accuracy in any evaluated round, over all seeds
    rounds_to   rounds to the target, over the `reached` seeds that met it; None without target
    bytes_to    bytes down and up to the target, likewise
    flops_to    floating-point operations to the target, likewise
    bytes       bytes down and up of the whole run, over the seeds that got to its end
    flops       operations of the whole run, likewise
    diverged    seeds that ended early with a verdict
    unfinished  seeds that have not got to the last round, and no verdict says why
    leads       has the highest final accuracy among the algorithms that finished all seeds
    baseline    the algorithm to compare with, if there is one for this row
    gaps        this one's final accuracy minus the baseline's, by seed
    """

    arm: Arm
    seeds: int
    final: Estimate | None
    tail: Estimate | None
    peak: Estimate | None
    rounds_to: Estimate | None
    bytes_to: Estimate | None
    flops_to: Estimate | None
    bytes: Estimate | None
    flops: Estimate | None
    reached: int
    diverged: int
    unfinished: int
    behind: Estimate | None = None
    leads: bool = False
    baseline: Arm | None = None
    gaps: Mapping[int, float] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every seed got to the last round."""
        return self.final is not None and self.final.n == self.seeds

    @property
    def difference(self) -> Estimate | None:
        """The mean of the gaps."""
        return Estimate.of(list(self.gaps.values()))

    @property
    def wins(self) -> int:
        """Seeds on which this one ends above the baseline."""
        return sum(gap > 0 for gap in self.gaps.values())

    @property
    def losses(self) -> int:
        """Seeds on which this one ends below the baseline."""
        return sum(gap < 0 for gap in self.gaps.values())


def summarise(run: Run, baseline: str | None = None) -> list[Row]:
    """The rows of the final table, in the order of the experiment.

    Algorithms are compared, seed by seed, with others on the same problem only. `baseline` is the
    label or the name of an algorithm.
    """
    rows = [_row(run, arm) for arm in run.arms]
    for problem in dict.fromkeys(arm.problem for arm in run.arms):
        there = [row for row in rows if row.arm.problem == problem and row.complete]
        best = max((_mean(row.final) for row in there), default=math.nan)
        leaders = [row.arm for row in there if _mean(row.final) == best]
        rows = [_ranked(row, leaders) if row.arm.problem == problem else row for row in rows]
    return rows if baseline is None else [_paired(run, row, baseline) for row in rows]


def first_hit(curve: Curve, target: float | None) -> int | None:
    """The place in a curve where it first meets the target."""
    hits = np.flatnonzero(curve["accuracy"] >= (math.inf if target is None else target))
    return int(hits[0]) if hits.size else None


def finals(arm: Arm) -> dict[int, float]:
    """The final accuracy of each seed that got to the last round with a finite model."""
    return {
        seed: float(curve["accuracy"][-1])
        for seed, curve in arm.curves.items()
        if seed not in arm.verdicts
        and curve.rounds[-1] == arm.last_round
        and math.isfinite(curve["accuracy"][-1])
    }


def peak(curve: Curve) -> float:
    """The highest accuracy; NaN if there is none."""
    finite = curve["accuracy"][np.isfinite(curve["accuracy"])]
    return float(finite.max()) if finite.size else math.nan


def best_peak(run: Run) -> float | None:
    """The highest accuracy of the best algorithm, averaged over its seeds."""
    peaks = (Estimate.of([peak(curve) for curve in arm.curves.values()]) for arm in run.arms)
    return max((one.mean for one in peaks if one), default=None)


def tail(curve: Curve) -> float:
    """The mean accuracy of the last tenth of the evaluated rounds."""
    return float(curve["accuracy"][-math.ceil(len(curve.rounds) / 10) :].mean())


def _mean(estimate: Estimate | None) -> float:
    return math.nan if estimate is None else estimate.mean


def _row(run: Run, arm: Arm) -> Row:
    done = finals(arm)
    whole = [arm.curves[seed] for seed in done]
    hits = [(c, i) for c in arm.curves.values() if (i := first_hit(c, run.target)) is not None]
    return Row(
        arm=arm,
        seeds=len(arm.seeds),
        final=Estimate.of(list(done.values())),
        tail=Estimate.of([tail(curve) for curve in whole]),
        peak=Estimate.of([peak(curve) for curve in arm.curves.values()]),
        rounds_to=Estimate.of([curve.rounds[i] for curve, i in hits]),
        bytes_to=Estimate.of([curve["bytes"][i] for curve, i in hits]),
        flops_to=Estimate.of([curve["flops"][i] for curve, i in hits]),
        bytes=Estimate.of([curve["bytes"][-1] for curve in whole]),
        flops=Estimate.of([curve["flops"][-1] for curve in whole]),
        reached=len(hits),
        diverged=len(arm.verdicts),
        unfinished=len(arm.seeds) - len(arm.verdicts.keys() | done.keys()),
    )


def _ranked(row: Row, leaders: Sequence[Arm]) -> Row:
    if row.arm in leaders:
        return replace(row, leads=True)
    behind = [gap for arm in leaders[:1] for gap in _gaps(arm, row.arm).values()]
    return replace(row, behind=Estimate.of(behind))


def _paired(run: Run, row: Row, baseline: str) -> Row:
    """The row with its gaps to the baseline of its own run, or else to the only one there is."""
    named = [arm for arm in run.arms if _called(arm, baseline)]
    if not named:
        raise UndriftError("--baseline: " + unknown("algorithm", baseline, _labels(run)))
    named = [arm for arm in named if arm.problem == row.arm.problem]
    own = [arm for arm in named if arm.run == row.arm.run]
    chosen = own or named
    if len(chosen) != 1:
        return row
    return replace(row, baseline=chosen[0], gaps=_gaps(row.arm, chosen[0]))


def _called(arm: Arm, name: str) -> bool:
    short = arm.label.removesuffix(f" · {arm.run}")
    return name.lower() in {text.lower() for text in (arm.name, arm.label, short)}


def _labels(run: Run) -> list[str]:
    return [arm.label for arm in run.arms]


def _gaps(arm: Arm, other: Arm) -> dict[int, float]:
    """The final accuracy of one minus that of another, on the seeds that both finished."""
    own, others = finals(arm), finals(other)
    return {seed: own[seed] - others[seed] for seed in own if seed in others}
