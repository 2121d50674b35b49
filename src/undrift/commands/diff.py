"""`undrift diff`: where two runs part."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console

from undrift.report import Run, read_run
from undrift.report.read import Arm, Curve

NOT_SETTINGS = {"name", "hash", "command", "version", "format"}
"""what may differ between two runs of one experiment"""

CLOCK = "seconds"
"""the one quantity that is never the same twice"""


def diff(a: Path, b: Path) -> None:
    """Compare two runs: their settings, and where their results begin to differ.

    Example: undrift diff runs/a runs/b

    Prints every setting that differs and, for each algorithm and seed that both have, the first
    round and quantity that are not the same to the last bit. Exit code 0: nothing differs but
    names, versions and times; 1: something does.

    Parameters
    ----------
    a
        Run directory.
    b
        Run directory.
    """
    one, other = read_run(a), read_run(b)
    console = Console(highlight=False)
    found = [*settings(one, other), *results(one, other)]
    for line in found or ["the same settings, the same results"]:
        console.print(line, markup=False, soft_wrap=True)
    versions = [run.experiment.get("version") for run in (one, other)]
    if versions[0] != versions[1]:
        console.print(f"written by undrift {versions[0]} and {versions[1]}", markup=False)
    if found:
        sys.exit(1)


def settings(a: Run, b: Run) -> Iterator[str]:
    """A line for each setting that differs, in the order of the settings."""
    for key in dict.fromkeys([*a.experiment, *b.experiment]):
        values = [run.experiment.get(key) for run in (a, b)]
        if key == "algorithms":
            values = [[arm.name for arm in run.arms] for run in (a, b)]
        if key not in NOT_SETTINGS and values[0] != values[1]:
            yield f"{key}: {values[0]} | {values[1]}"


def results(a: Run, b: Run) -> Iterator[str]:
    """A line for each algorithm and seed of both runs whose results differ."""
    theirs = {arm.name: arm for arm in b.arms}
    for arm in a.arms:
        other = theirs.get(arm.name)
        for seed in arm.seeds if other else ():
            if other and seed in other.seeds and (found := _first(arm, other, seed)):
                yield f"{arm.label}, seed {seed}: {found}"


def _first(a: Arm, b: Arm, seed: int) -> str | None:
    """Where two curves part: a differing value, a missing round, or another verdict."""
    one, other = a.curves.get(seed), b.curves.get(seed)
    rounds = [set() if c is None else set(c.rounds.tolist()) for c in (one, other)]
    if one and other:
        for t in sorted(rounds[0] & rounds[1]):
            if found := _values(one, other, t):
                return found
    if alone := rounds[0] ^ rounds[1]:
        t = min(alone)
        return f"round {t} is only in the {'first' if t in rounds[0] else 'second'}"
    ends = [arm.verdicts.get(seed) for arm in (a, b)]
    says = ["no verdict" if v is None else f"ended in round {v.round}: {v.reason}" for v in ends]
    return None if ends[0] == ends[1] else " | ".join(says)


def _values(a: Curve, b: Curve, t: int) -> str | None:
    """The first quantity that differs in a round, and how many others do."""
    here, there = (int(np.flatnonzero(curve.rounds == t)[0]) for curve in (a, b))
    pairs = {
        name: (a.values[name][here], b.values[name][there])
        for name in a.values
        if name in b.values and name != CLOCK
    }
    unequal = [name for name, pair in pairs.items() if not np.array_equal(*pair, equal_nan=True)]
    if not unequal:
        return None
    x, y = (float(value) for value in pairs[unequal[0]])
    more = f", and {len(unequal) - 1} quantities more" if unequal[1:] else ""
    return f"round {t}, {unequal[0]}: {x!r} | {y!r}{more}"
