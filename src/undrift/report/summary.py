"""Summary: results and costs of each algorithm, and comparisons with the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from undrift.config import UndriftError, unknown
from undrift.experiment.registry import algorithm
from undrift.later import np
from undrift.report.estimate import Bounds, Estimate
from undrift.report.read import Arm, Run, TrialRecord
from undrift.report.score import ACCURACY, Score
from undrift.runs.columns import Floats


@dataclass(frozen=True)
class SummaryRow:
    """One algorithm of the final table. Results are in units of its score, accuracies as shares;
    costs are totals over all clients.

    final       result in the last round, over the seeds that completed it or were stopped
    behind      how much better the leader's final result is, seed by seed; None for the leader
    tail        result averaged over the last tenth of the evaluated rounds, over the same seeds
    peak        the best result in any evaluated round, over all seeds
    latest      result in `latest_round`, the last round that all started seeds evaluated
    rounds_to   rounds to the target, over the `reached` seeds that met it; None without target
    bytes_to    bytes down and up to the target, over the same seeds
    flops_to    floating-point operations to the target, over the same seeds
    bytes       bytes down and up of the whole run, over the seeds of `final`
    flops       operations of the whole run, over the seeds of `final`
    balanced    final balanced accuracy, if there are classes
    clients     final mean over clients of the results on their own test samples, if they have any
    personal    the same on their own samples after some local steps, if that was measured
    since       of forks, the costs since the fork, by the name of those that count the whole past
    early       seeds of a fork that met the target in its first evaluation, or before the fork
    diverged    seeds that ended early with a failure
    under_way   rounds done by each seed that is neither finished nor failed
    stopped     rounds done by each seed that a stop rule ended
    leads       whether its final result is the best of the federated algorithms that finished all
                seeds
    baseline    the algorithm to compare with, if there is one for this row
    gaps        seed → final result minus that of the baseline
    """

    arm: Arm
    seeds: int
    final: Estimate | None
    tail: Estimate | None
    peak: Estimate | None
    latest: Estimate | None
    latest_round: int
    rounds_to: Estimate | None
    bytes_to: Estimate | None
    flops_to: Estimate | None
    bytes: Estimate | None
    flops: Estimate | None
    reached: int
    diverged: int
    under_way: tuple[int, ...]
    balanced: Estimate | None = None
    clients: Estimate | None = None
    personal: Estimate | None = None
    since: Mapping[str, Estimate | None] = field(default_factory=dict)
    early: int = 0
    stopped: tuple[int, ...] = ()
    behind: Estimate | None = None
    leads: bool = False
    baseline: Arm | None = None
    gaps: Mapping[int, float] = field(default_factory=dict)

    @property
    def score(self) -> Score:
        """What the results measure."""
        return self.arm.score

    @property
    def unfinished(self) -> int:
        """Number of seeds that are neither finished nor failed."""
        return len(self.under_way)

    @property
    def done(self) -> int:
        """Rounds that every seed has done; a seed with a failure counts as done."""
        return min(self.under_way, default=self.arm.rounds)

    @property
    def complete(self) -> bool:
        """Whether every seed has a final result."""
        return self.final is not None and self.final.n == self.seeds

    @property
    def difference(self) -> Estimate | None:
        """The mean of the gaps."""
        return Estimate.of(list(self.gaps.values()), self.score.gap_bounds)

    @property
    def wins(self) -> int:
        """Seeds with a better final result than the baseline."""
        return sum(self.score.rank(gap) > 0 for gap in self.gaps.values())

    @property
    def losses(self) -> int:
        """Seeds with a worse final result than the baseline."""
        return sum(self.score.rank(gap) < 0 for gap in self.gaps.values())


def summarise(run: Run, baseline: str | None = None) -> list[SummaryRow]:
    """The rows of the final table, in the order of the experiment.

    Algorithms are compared seed by seed, and only on the same problem. `baseline` is the label or
    the name of an algorithm.
    """
    rows = [_row(run, arm) for arm in run.arms]
    for problem in dict.fromkeys(arm.problem for arm in run.arms):
        there = [row for row in rows if row.arm.problem == problem and row.complete]
        ranked = [row for row in there if row.arm.federated] or there
        ranks = {row.arm: row.score.rank(row.final.mean) for row in ranked if row.final}
        leaders = [arm for arm, rank in ranks.items() if rank == max(ranks.values())]
        rows = [_ranked(row, leaders) if row.arm.problem == problem else row for row in rows]
    return rows if baseline is None else [_paired(run, row, baseline) for row in rows]


def first_hit(curve: TrialRecord, target: float | None) -> int | None:
    """Index of the first evaluation that meets the target; None if there is none."""
    hits = np.flatnonzero(ACCURACY.of(curve) >= (math.inf if target is None else target))
    return int(hits[0]) if hits.size else None


def finals(arm: Arm) -> dict[int, float]:
    """Seed → final result, for the seeds that finished with a finite one."""
    found = {seed: float(arm.score.of(c)[-1]) for seed, c in arm.curves.items()}
    return {s: result for s, result in found.items() if arm.finished(s) and math.isfinite(result)}


def best_peak(run: Run) -> float | None:
    """The best result of the best algorithm, averaged over its seeds."""
    score = run.score
    peaks = (Estimate.of([score.peak(curve) for curve in arm.curves.values()]) for arm in run.arms)
    return max((one.mean for one in peaks if one), key=score.rank, default=None)


def tail(score: Score, curve: TrialRecord) -> float:
    """The mean result of the last tenth of the evaluated rounds."""
    return float(score.of(curve)[-math.ceil(len(curve.rounds) / 10) :].mean())


def latest(
    arm: Arm, values: Callable[[TrialRecord], Floats], bounds: Bounds | None = None
) -> Estimate | None:
    """Estimate of values in the last round that all started seeds evaluated."""
    last, curves = arm.shared_rounds[-1:], arm.curves.values()
    return Estimate.of([v for c in curves for v in values(c)[np.isin(c.rounds, last)]], bounds)


def _row(run: Run, arm: Arm) -> SummaryRow:
    done, score = finals(arm), arm.score
    whole = [arm.curves[seed] for seed in done]
    reached = {seed: int(curve.rounds[-1]) for seed, curve in arm.curves.items()}
    first = {s: i for s, c in arm.curves.items() if (i := first_hit(c, run.target)) is not None}
    hits = [(arm.curves[seed], i) for seed, i in first.items()]
    kind = "accuracy" if score is ACCURACY else "loss"
    # Without own test samples, clients that train alone are measured on what they train on.
    tested = any(one.name == arm.run and one.experiment.get("client_test") for one in run.members)
    return SummaryRow(
        arm=arm,
        seeds=len(arm.seeds),
        final=Estimate.of(list(done.values()), score.bounds),
        tail=Estimate.of([tail(score, curve) for curve in whole], score.bounds),
        peak=Estimate.of([score.peak(curve) for curve in arm.curves.values()], score.bounds),
        latest=latest(arm, score.of, score.bounds),
        latest_round=int(arm.shared_rounds[-1]) if arm.shared_rounds.size else 0,
        rounds_to=Estimate.of([curve.rounds[i] for curve, i in hits]),
        bytes_to=Estimate.of([curve["bytes"][i] for curve, i in hits]),
        flops_to=Estimate.of([curve["flops"][i] for curve, i in hits]),
        bytes=Estimate.of([curve["bytes"][-1] for curve in whole]),
        flops=Estimate.of([curve["flops"][-1] for curve in whole]),
        balanced=Estimate.of([c["balanced_accuracy"][-1] for c in whole], ACCURACY.bounds),
        clients=Estimate.of([c[f"client_{kind}_mean"][-1] for c in whole if tested], score.bounds),
        personal=Estimate.of([c[f"personal_{kind}_mean"][-1] for c in whole], score.bounds),
        since=_since(arm, done, first) if arm.fork else {},
        early=sum(i == 0 for i in first.values()) if arm.fork else 0,
        reached=len(hits),
        diverged=len(arm.failures),
        under_way=tuple(
            reached.get(seed, 0)
            for seed in arm.seeds
            if seed not in arm.failures and not arm.finished(seed)
        ),
        stopped=tuple(reached[seed] for seed in arm.stops),
    )


def _since(arm: Arm, done: Iterable[int], first: Mapping[int, int]) -> dict[str, Estimate | None]:
    """Costs of a fork itself, where those before it are known."""
    spent = arm.fork.spent if arm.fork else {}

    def own(x: str, places: Mapping[int, int]) -> Estimate | None:
        known = all(seed in spent for seed in places)
        costs = [arm.curves[seed][x][i] - spent[seed][x] for seed, i in places.items() if known]
        return Estimate.of(costs)

    last = dict.fromkeys(done, -1)
    return {x: own(x, last) for x in ("bytes", "flops")} | {
        f"{x}_to": own(x, first) for x in ("bytes", "flops")
    }


def _ranked(row: SummaryRow, leaders: Sequence[Arm]) -> SummaryRow:
    if row.arm in leaders:
        return replace(row, leads=True)
    score = row.score
    behind = [score.rank(gap) for arm in leaders[:1] for gap in _gaps(arm, row.arm).values()]
    return replace(row, behind=Estimate.of(behind, score.gap_bounds))


def _paired(run: Run, row: SummaryRow, baseline: str) -> SummaryRow:
    """The row with its gaps to the baseline of its own run, or to the only one in other runs."""
    named = [arm for arm in run.arms if _called(arm, baseline)]
    if not named:
        raise UndriftError("--baseline: " + unknown("algorithm", baseline, _labels(run)))
    named = [arm for arm in named if arm.problem == row.arm.problem]
    own = [arm for arm in named if arm.run == row.arm.run]
    chosen = own or named
    if len(chosen) != 1:
        return row
    return replace(row, baseline=chosen[0], gaps=_gaps(row.arm, chosen[0]))


def find_arm(run: Run, name: str, flag: str) -> Arm:
    """The algorithm of a run with this label or name, or this name on the command line; case does
    not matter."""
    full = _full(name)
    found = [arm for arm in run.arms if _called(arm, name) or arm.name == full]
    if not found:
        raise UndriftError(f"{flag}: " + unknown("algorithm of the run", name, _labels(run)))
    return found[0]


def _full(name: str) -> str:
    """The `repr` of the algorithm that the command line calls by this name, if there is one."""
    try:
        return repr(algorithm(name))
    except UndriftError:
        return name


def _called(arm: Arm, name: str) -> bool:
    return name.lower() in {text.lower() for text in (arm.name, arm.label, arm.short)}


def _labels(run: Run) -> list[str]:
    return [arm.label for arm in run.arms]


def _gaps(arm: Arm, other: Arm) -> dict[int, float]:
    """Seed → final result of one arm minus that of another, on the seeds that both finished."""
    own, others = finals(arm), finals(other)
    return {seed: own[seed] - others[seed] for seed in own if seed in others}
