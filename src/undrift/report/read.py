"""Reading run directories: checked values, one curve per trial."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from undrift.config import UndriftError, shortened
from undrift.later import NDArray, np
from undrift.measure.quantities import CLOCK, QUANTITIES
from undrift.report.forks import Fork, read_fork
from undrift.report.labels import short_names
from undrift.report.score import ACCURACY, LOSS, RMSE, Score
from undrift.runs.clients import read_clients
from undrift.runs.columns import Floats, MetricsReader
from undrift.runs.layout import RunFile
from undrift.runs.reading import (
    FILES,
    Failure,
    LabelCounts,
    is_folder,
    read_experiment,
    read_failures,
    read_label_counts,
    read_names,
)

PROBLEM = (
    *("data", "partition", "model", "sampler", "rounds", "validation", "dropout"),
    *("client_test", "test_subset", "test"),
)
"""settings that must agree for algorithms to be compared"""


@dataclass(frozen=True, eq=False)
class TrialRecord:
    """One trial: the evaluated rounds and every metric there, NaN for no value.

    lists  recorded metrics with several values per round, such as one per parameter group, as
           arrays of rounds × values
    """

    rounds: NDArray[np.int64]
    values: Mapping[str, Floats]
    lists: Mapping[str, Floats]

    def __getitem__(self, metric: str) -> Floats:
        if metric in self.values:
            return self.values[metric]
        if metric == "round":
            return self.rounds.astype(np.float64)
        parts = QUANTITIES[metric].sum_of or (metric,)
        return np.asarray(np.sum([self.values[part] for part in parts], axis=0))


@dataclass(frozen=True, eq=False)
class Arm:
    """One algorithm of a run, or of several runs that differ in their seeds only.

    label             a short name, unique among all algorithms of a report
    short             the label without the settings of its run
    run               the name of its run
    problem           the settings in PROBLEM; only arms with the same ones are compared
    seeds             planned seeds; `curves` and `failures` are by seed
    stops             seed → the rule that stopped it, which is finished then
    rounds            planned rounds
    score             what it is ranked by
    groups            names of the model's parameter groups; none if they were not recorded
    fork              where it started, if not from a new model
    """

    name: str
    label: str
    run: str
    problem: str
    seeds: tuple[int, ...]
    curves: Mapping[int, TrialRecord]
    failures: Mapping[int, Failure]
    rounds: int
    score: Score
    groups: tuple[str, ...] = ()
    short: str = ""
    fork: Fork | None = None
    stops: Mapping[int, str] = field(default_factory=dict)

    @property
    def federated(self) -> bool:
        """Whether it can be the best of a table: not with all samples in one place."""
        return not self.name.startswith("Centralised(")

    def finished(self, seed: int) -> bool:
        """Whether a seed completed the last round, or was stopped, without a failure."""
        curve = self.curves.get(seed)
        there = curve is not None and (seed in self.stops or curve.rounds[-1] >= self.rounds)
        return bool(there) and seed not in self.failures

    @cached_property
    def shared_rounds(self) -> NDArray[np.int64]:
        """The rounds at which every seed was evaluated."""
        curves = list(self.curves.values())
        rounds = curves[0].rounds if curves else np.empty(0, dtype=np.int64)
        for curve in curves[1:]:
            rounds = np.intersect1d(rounds, curve.rounds)
        return rounds

    @cached_property
    def _shared(self) -> list[NDArray[np.bool_]]:
        """Mask of the shared rounds in each curve."""
        return [np.isin(curve.rounds, self.shared_rounds) for curve in self.curves.values()]

    def band(self, metric: str) -> tuple[Floats, Floats | None]:
        """Mean and sd over seeds, at the rounds all seeds evaluated; no sd for a single seed.

        The mean ends with the first seed that ends: the mean of the others would be biased.
        """
        if not self.shared_rounds.size:
            return np.empty(0), None
        curves = zip(self.curves.values(), self._shared, strict=True)
        rows = np.array([curve[metric][there] for curve, there in curves])
        return rows.mean(axis=0), rows.std(axis=0, ddof=1) if len(rows) > 1 else None

    def sheet(self, name: str) -> Floats | None:
        """Mean of a list over seeds, rounds × values; None if a seed lacks it."""
        curves = list(self.curves.values())
        widths = {c.lists[name].shape[1] if name in c.lists else 0 for c in curves}
        if not self.shared_rounds.size or len(widths) != 1 or 0 in widths:
            return None
        sheets = [c.lists[name][there] for c, there in zip(curves, self._shared, strict=True)]
        return np.asarray(np.mean(sheets, axis=0))


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory, or several as one (see `merge`).

    merged      the runs that this one was merged from, if any; each may be pooled from several
    pooled      the runs of the same settings that this one was pooled from, if any
    partitions  name of the run → samples of each class per client; empty if there are no labels
    """

    folder: Path
    experiment: Mapping[str, Any]
    name: str
    arms: tuple[Arm, ...]
    target: float | None
    partitions: Mapping[str, LabelCounts]
    merged: tuple[Run, ...] = ()
    pooled: tuple[Run, ...] = ()

    @cached_property
    def client_rows(self) -> list[dict[str, str]]:
        """The rows of clients.csv, as text."""
        return read_clients(self.folder / RunFile.CLIENTS)

    @property
    def members(self) -> tuple[Run, ...]:
        """The runs in it that differ in more than their seeds."""
        return self.merged or (self,)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of all algorithms."""
        return tuple(sorted({seed for arm in self.arms for seed in arm.seeds}))

    @property
    def curves(self) -> list[TrialRecord]:
        return [curve for arm in self.arms for curve in arm.curves.values()]

    @property
    def begun(self) -> bool:
        """Whether there is anything to report."""
        return any(arm.curves or arm.failures for arm in self.arms)

    @property
    def last_round(self) -> int:
        """The last evaluated round of any algorithm."""
        return max((int(curve.rounds[-1]) for curve in self.curves), default=0)

    @property
    def score(self) -> Score:
        """What the algorithms are ranked by; that of the first one, if merged runs differ."""
        return self.arms[0].score

    @property
    def rounds(self) -> int:
        """Planned rounds; old runs did not record them."""
        rounds: int = self.experiment.get("rounds", self.last_round)
        return rounds

    @property
    def finished(self) -> bool:
        return self.done >= self.rounds

    @property
    def all_failed(self) -> bool:
        """Whether every algorithm ended with a failure on every seed."""
        return all(seed in arm.failures for arm in self.arms for seed in arm.seeds)

    @property
    def done(self) -> int:
        """Rounds done, averaged over trials; one that failed or was stopped counts as done."""
        total, done = self.rounds, 0
        pairs = [(arm, seed) for arm in self.arms for seed in arm.seeds]
        for arm, seed in pairs:
            curve = arm.curves.get(seed)
            last = 0 if curve is None else int(curve.rounds[-1])
            ended = seed in arm.failures or seed in arm.stops
            done += total if ended else min(last, total)
        return done // len(pairs)

    @property
    def trials(self) -> int:
        """Planned trials."""
        return sum(len(arm.seeds) for arm in self.arms)

    @property
    def trials_done(self) -> int:
        """Trials that finished or failed."""
        return sum(
            seed in arm.failures or arm.finished(seed) for arm in self.arms for seed in arm.seeds
        )

    @property
    def seconds_left(self) -> float | None:
        """Time that the remaining rounds take at the speed so far; None if that is unknown."""
        done, left, seconds = 0, 0, 0.0
        for arm in self.arms:
            start = arm.fork.round if arm.fork else 0
            for seed in arm.seeds:
                curve = arm.curves.get(seed)
                last = start if curve is None else int(curve.rounds[-1])
                ended = seed in arm.failures or seed in arm.stops
                left += 0 if ended else max(arm.rounds - last, 0)
                if curve is not None and CLOCK in curve.values:
                    done += last - start
                    seconds += float(np.nan_to_num(curve.values[CLOCK][-1]))
        return left * seconds / done if done > 0 and seconds > 0 else None

    def recorded(self, metric: str) -> bool:
        """Whether any trial has a finite value of this metric."""
        return any(bool(np.isfinite(curve[metric]).any()) for curve in self.curves)

    @property
    def imbalanced(self) -> list[LabelCounts]:
        """The partitions whose test classes visibly differ in size, if that can be told."""
        known = self.partitions.values() if self.recorded("balanced_accuracy") else ()
        return [labels for labels in known if labels.imbalanced]

    def largest(self, metric: str) -> float:
        """The largest value of a metric; 0 without values."""
        return max((float(np.nan_to_num(curve[metric]).max()) for curve in self.curves), default=0)


def read_run(run_dir: Path, metrics: MetricsReader | None = None) -> Run:
    """Load and check a run directory; it may still be running, and have no curves yet.

    metrics  the reader that read its rows before, which then parses only the new ones

    Of a round written twice the last row counts. Rows from the round of a failure on are ignored,
    since the model is no longer finite; so is an incomplete last line.
    """
    folder = Path(run_dir)
    if not is_folder(folder):
        raise UndriftError(f"{shortened(str(folder))} is not a directory; give the one a run wrote")
    settings, rows, partition, endings, _ = (folder / name for name in FILES)
    experiment = read_experiment(settings)
    name, seeds = experiment["name"], tuple(experiment["seeds"])
    names = read_names(settings, experiment["algorithms"])
    labels = short_names(names)
    failures = read_failures(endings)
    ends = {(failure.algorithm, failure.seed): failure.round for failure in failures}
    trials = (metrics or MetricsReader(rows)).read({(n, seed) for n in names for seed in seeds})
    stops = {key: trial.stopped for key, trial in trials.items() if trial.stopped}
    every = {
        key: TrialRecord(*trial.columns(ends.get(key, math.inf))) for key, trial in trials.items()
    }
    curves = {key: curve for key, curve in every.items() if curve.rounds.size}
    last_round = max((int(curve.rounds[-1]) for curve in curves.values()), default=0)
    score = _score(experiment, curves.values())
    target = experiment.get("target")
    counts = read_label_counts(partition)
    groups = experiment.get("groups")
    fork = read_fork(folder, experiment, seeds)
    return Run(
        folder=folder,
        experiment=experiment,
        name=name,
        arms=tuple(
            Arm(
                name=algorithm,
                label=label,
                short=label,
                run=name,
                problem=json.dumps([score.name, *(experiment.get(key) for key in PROBLEM)]),
                seeds=seeds,
                curves={s: curves[algorithm, s] for s in seeds if (algorithm, s) in curves},
                failures={v.seed: v for v in failures if v.algorithm == algorithm},
                rounds=experiment.get("rounds", last_round),
                score=score,
                groups=tuple(map(str, groups)) if isinstance(groups, list) else (),
                fork=fork,
                stops={s: stops[algorithm, s] for s in seeds if (algorithm, s) in stops},
            )
            for algorithm, label in labels.items()
        ),
        target=target if score is ACCURACY else None,
        partitions={} if counts is None else {name: counts},
    )


def _score(experiment: Mapping[str, Any], curves: Collection[TrialRecord]) -> Score:
    """Accuracy if any was recorded; otherwise the test loss, as RMSE if it is a squared error."""
    accuracy, loss = (
        any(np.isfinite(score.of(curve)).any() for curve in curves) for score in (ACCURACY, LOSS)
    )
    if accuracy or not loss:
        return ACCURACY
    return RMSE if experiment.get("loss", "mse") == "mse" else LOSS
