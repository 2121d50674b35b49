"""Merging runs: those that differ in their seeds only are pooled, others are told apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from undrift.config import UndriftError
from undrift.later import np
from undrift.measure.quantities import CLOCK
from undrift.report.labels import short_names, suffixes
from undrift.report.read import Arm, Run, TrialRecord
from undrift.report.settings import compared, differences
from undrift.runs.reading import LabelCounts

LISTED = 4
"""most runs whose names are listed"""


class Contradiction(UndriftError):
    """Two runs of one experiment have other results for the same algorithm and seed."""


def merge(runs: Sequence[Run], *, strict: bool = True) -> Run:
    """Several runs as one: the algorithms of all of them, and the settings they share.

    Seeds of runs with the same settings are pooled, as if it had been one run. Algorithms of other
    runs are labelled by the settings in which these differ.

    strict  raise if runs contradict each other; otherwise they are told apart by their names
    """
    if len(runs) == 1:
        return runs[0]
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    if len(set(names)) < len(names):
        raise UndriftError(f"a run is given twice among {', '.join(names)}; give each one once")
    runs = [renamed(run, name) for run, name in zip(runs, names, strict=True)]
    called = {str(run.experiment.get("hash")): run.name for run in runs}
    runs = [traced(run, called) for run in runs]
    flats = compared([run.experiment for run in runs])
    alike: list[list[int]] = []  # places of runs with the same settings
    for place, flat in enumerate(flats):
        same = next((group for group in alike if flats[group[0]] == flat), None)
        if same is None:
            alike.append([place])
        else:
            same.append(place)
    pooled: list[Run] = []
    told: list[list[str]] = []
    for group, said in zip(alike, differences([flats[one[0]] for one in alike]), strict=True):
        found = _pool([runs[place] for place in group], strict)
        pooled += found
        told += [said] * len(found)
    return _labelled(pooled, told, listed(names))


def _labelled(runs: Sequence[Run], told: Sequence[Sequence[str]], name: str) -> Run:
    """The runs as one, with labels that say in what each differs."""
    known: dict[str, str] = {}
    for arm in (arm for run in runs for arm in run.arms):
        if known.get(arm.name, arm.name) == arm.name:  # the shortest label that a run has for it
            known[arm.name] = arm.label
    short = short_names(known)
    runs = [
        _with_arms(run, [_named(arm, short[arm.name], end) for arm in run.arms])
        for run, end in zip(runs, suffixes(told, [run.name for run in runs]), strict=True)
    ]
    labels = [arm.label for run in runs for arm in run.arms]
    runs = [
        _with_arms(run, [_distinct(arm, labels.count(arm.label) == 1) for arm in run.arms])
        for run in runs
    ]
    if len(runs) == 1:
        return replace(runs[0], name=name, folder=runs[0].folder.parent)
    owners: dict[str, list[str]] = {}
    drawn: dict[str, LabelCounts] = {}
    for run in runs:
        for one in run.partitions.values():
            text = json.dumps(one.counts.tolist())
            owners.setdefault(text, []).append(run.name)
            drawn[text] = one
    first, *others = (run.experiment for run in runs)
    return Run(
        folder=runs[0].folder.parent,
        experiment={k: v for k, v in first.items() if all(e.get(k) == v for e in others)},
        name=name,
        arms=tuple(arm for run in runs for arm in run.arms),
        target=runs[0].target if len({run.target for run in runs}) == 1 else None,
        partitions={listed(names): drawn[text] for text, names in owners.items()},
        merged=tuple(runs),
    )


def traced(run: Run, called: Mapping[str, str]) -> Run:
    """The run, forked from a run of this name instead of this hash: `called` has hash → name."""
    return _with_arms(run, [_traced(arm, called) for arm in run.arms])


def _traced(arm: Arm, called: Mapping[str, str]) -> Arm:
    """The arm, with the name of the run that it was forked from, if that is known."""
    if arm.fork is None or arm.fork.run not in called:
        return arm
    return replace(arm, fork=replace(arm.fork, run=called[arm.fork.run]))


def _named(arm: Arm, short: str, end: str) -> Arm:
    return replace(arm, short=short, label=short + end)


def _distinct(arm: Arm, unique: bool) -> Arm:
    return arm if unique else replace(arm, label=f"{arm.label} · {arm.run}")


def renamed(run: Run, name: str) -> Run:
    """The run under another name."""
    partitions = dict(zip([name], run.partitions.values(), strict=False))
    return _with_arms(replace(run, name=name, partitions=partitions), run.arms)


def _with_arms(run: Run, arms: Iterable[Arm]) -> Run:
    return replace(run, arms=tuple(replace(arm, run=run.name) for arm in arms))


def listed(names: Sequence[str]) -> str:
    """Names of runs; of many only the first and the last."""
    if len(names) <= LISTED:
        return ", ".join(names)
    return f"{names[0]}, …, {names[-1]} ({len(names)} runs)"


def _pool(runs: Sequence[Run], strict: bool) -> list[Run]:
    """Runs of the same settings as one; as they are if they contradict each other."""
    if len(runs) == 1:
        return list(runs)
    arms: dict[str, Arm] = {}
    try:
        for arm in (arm for run in runs for arm in run.arms):
            arms[arm.name] = _joined(arms[arm.name], arm) if arm.name in arms else arm
    except Contradiction:
        if strict:
            raise
        return list(runs)
    name = listed([run.name for run in runs])
    together = replace(
        runs[0],
        name=name,
        experiment=_shared([run.experiment for run in runs]),
        partitions=dict(zip([name], runs[0].partitions.values(), strict=False)),
        target=runs[0].target if len({run.target for run in runs}) == 1 else None,
        pooled=tuple(runs),
    )
    return [_with_arms(together, arms.values())]


def _shared(experiments: Sequence[Any]) -> dict[str, Any]:
    """The settings of pooled runs: the seeds of all, and facts that differ side by side."""
    shared: dict[str, Any] = {}
    for key in dict.fromkeys(key for one in experiments for key in one):
        values = [one.get(key) for one in experiments]
        if all(value == values[0] for value in values):
            shared[key] = values[0]
        elif key == "seeds":
            shared[key] = sorted({seed for seeds in values for seed in seeds})
        elif key == "algorithms":
            entries = {entry["name"]: entry for one in values for entry in one}
            shared[key] = list(entries.values())
        else:
            shared[key] = ", ".join(dict.fromkeys(str(value) for value in values))
    return shared


def _joined(one: Arm, other: Arm) -> Arm:
    """An algorithm with the seeds of two runs; a seed that both have counts once."""
    curves, failures = dict(one.curves), dict(one.failures)
    for seed in other.seeds:
        _refuse_contradiction(one, other, seed)
        mine, theirs = curves.get(seed), other.curves.get(seed)
        if theirs is not None and (mine is None or mine.rounds[-1] < theirs.rounds[-1]):
            curves[seed] = theirs
        if seed in other.failures:
            failures[seed] = other.failures[seed]
    known = one if one.curves else other  # which tells what it is ranked by
    return replace(
        known,
        run=f"{one.run}, {other.run}",
        seeds=tuple(sorted({*one.seeds, *other.seeds})),
        curves=dict(sorted(curves.items())),
        fork=one.fork and replace(one.fork, spent=_spent(one) | _spent(other)),
        failures=dict(sorted(failures.items())),
        stops={**one.stops, **other.stops},
    )


def _spent(arm: Arm) -> dict[int, Mapping[str, float]]:
    return dict(arm.fork.spent) if arm.fork else {}


def _refuse_contradiction(one: Arm, other: Arm, seed: int) -> None:
    """Raise if two runs have results of a seed that do not agree."""
    ends = [arm.failures.get(seed) for arm in (one, other)]
    curves = [arm.curves.get(seed) for arm in (one, other)]
    where = ""
    if curves[0] is not None and curves[1] is not None:
        where = _disagree(curves[0], curves[1])
    if not where and ends[0] != ends[1]:
        failed, going = (one, other) if ends[0] else (other, one)
        if going.finished(seed) or all(ends):
            where = f"failed in round {failed.failures[seed].round}"
    if where:
        raise Contradiction(
            f"{one.run} and {other.run} have the same settings, and other results of "
            f"{one.label} with seed {seed}: {where}; leave one of them out, or see `undrift diff`"
        )


def _disagree(one: TrialRecord, other: TrialRecord) -> str:
    """The first round and quantity in which two curves differ; nothing if they agree."""
    rounds, here, there = np.intersect1d(one.rounds, other.rounds, return_indices=True)
    for name in one.values:
        if name in other.values and name != CLOCK:
            x, y = one.values[name][here], other.values[name][there]
            unequal = np.flatnonzero((x != y) & ~(np.isnan(x) & np.isnan(y)))
            if unequal.size and not np.isnan(x).all() and not np.isnan(y).all():
                k = unequal[0]
                return f"round {rounds[k]}, {name} {float(x[k])!r} and {float(y[k])!r}"
    return ""
