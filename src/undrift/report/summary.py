"""Summary: what each algorithm reached and what it cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from undrift.report.read import Arm, Curve, Run


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

    @property
    def complete(self) -> bool:
        """Whether every seed got to the last round."""
        return self.final is not None and self.final.n == self.seeds


def summarise(run: Run) -> list[Row]:
    """The rows of the final table, in the order of the experiment."""
    rows = [_row(run, arm) for arm in run.arms]
    whole = [_mean(row.final) for row in rows if row.complete]
    if not whole:
        return rows
    rows = [replace(row, leads=row.complete and _mean(row.final) == max(whole)) for row in rows]
    leader = _finals(run, next(row.arm for row in rows if row.leads))
    return [row if row.leads else replace(row, behind=_behind(run, row, leader)) for row in rows]


def _mean(estimate: Estimate | None) -> float:
    return math.nan if estimate is None else estimate.mean


def _row(run: Run, arm: Arm) -> Row:
    curves, diverged = run.of(arm), run.diverged(arm)
    whole = [curves[seed] for seed in _finals(run, arm)]
    hits = [hit for curve in curves.values() if (hit := _first_hit(curve, run.target)) is not None]
    return Row(
        arm=arm,
        seeds=len(run.seeds),
        final=Estimate.of([curve["accuracy"][-1] for curve in whole]),
        tail=Estimate.of([_tail_mean(curve) for curve in whole]),
        peak=Estimate.of([_peak(curve) for curve in curves.values()]),
        rounds_to=Estimate.of([curve.rounds[i] for curve, i in hits]),
        bytes_to=Estimate.of([curve["bytes"][i] for curve, i in hits]),
        flops_to=Estimate.of([curve["flops"][i] for curve, i in hits]),
        bytes=Estimate.of([curve["bytes"][-1] for curve in whole]),
        flops=Estimate.of([curve["flops"][-1] for curve in whole]),
        reached=len(hits),
        diverged=len(diverged),
        unfinished=len(run.seeds) - len(set(diverged) | set(_finals(run, arm))),
    )


def _finals(run: Run, arm: Arm) -> dict[int, float]:
    """The final accuracy of each seed that got to the last round with a finite model."""
    diverged, last = run.diverged(arm), run.last_round
    return {
        seed: float(curve["accuracy"][-1])
        for seed, curve in run.of(arm).items()
        if seed not in diverged
        and curve.rounds[-1] == last
        and math.isfinite(curve["accuracy"][-1])
    }


def _behind(run: Run, row: Row, leader: dict[int, float]) -> Estimate | None:
    own = _finals(run, row.arm)
    return Estimate.of([leader[seed] - accuracy for seed, accuracy in own.items()])


def _first_hit(curve: Curve, target: float | None) -> tuple[Curve, int] | None:
    hits = np.flatnonzero(curve["accuracy"] >= (math.inf if target is None else target))
    return (curve, int(hits[0])) if hits.size else None


def _tail_mean(curve: Curve) -> float:
    return float(curve["accuracy"][-math.ceil(len(curve.rounds) / 10) :].mean())


def _peak(curve: Curve) -> float:
    finite = curve["accuracy"][np.isfinite(curve["accuracy"])]
    return float(finite.max()) if finite.size else math.nan
