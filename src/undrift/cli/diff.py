"""`undrift diff`: where two runs part."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from undrift.arithmetic import recorded
from undrift.later import np
from undrift.measure.quantities import CLOCK, QUANTITIES
from undrift.report import Run, read_run
from undrift.report.read import Arm, TrialRecord
from undrift.report.settings import NOT_SETTINGS, plain, spread
from undrift.report.text import printable

ROUNDING = 1e-4
"""what rounding may amount to where two runs part: a thousand times the last digit of a float32"""

TARGET = "target"
"""the setting that concerns reports only: results and identity of a run do not depend on it"""


@dataclass(frozen=True)
class Parting:
    """Where the results of an algorithm on a seed part.

    said     what differs first
    size     by how much, relatively, in the quantity that differs most there
    largest  the largest relative difference of any round and quantity, and which it is
    """

    trial: str
    said: str
    size: float = 0.0
    largest: tuple[float, str] = (0.0, "")


def diff(a: Path, b: Path) -> None:
    """Compare two runs: their settings, and where their results begin to differ.

    Example: undrift diff runs/a runs/b

    Prints every setting that differs and, for each algorithm and seed that both have, the first
    round and quantity that are not the same to the last bit, and the largest difference. Runs with
    the same settings may still differ by rounding, if another CPU, engine or version of a library
    computed them: it says whether that is so. Exit code 0: nothing differs but names, versions,
    times and the target of reports; 1: something does.

    Parameters
    ----------
    a
        Run directory.
    b
        Run directory.
    """
    one, other = read_run(a), read_run(b)
    told, partings = list(settings(one, other)), list(results(one, other))
    lines = [*told, *(f"{parting.trial}: {parting.said}" for parting in partings)]
    if not told:
        same = "the same settings, the same results"
        lines.insert(0, "the same settings, other results:" if partings else same)
    if any(parting.size for parting in partings):
        size, where = max(parting.largest for parting in partings)
        lines.append(f"largest relative difference: {size:.2g}, {where}")
        lines += [] if told else _cause(a, b, max(parting.size for parting in partings))
    targets = [run.experiment.get(TARGET) for run in (one, other)]
    if targets[0] != targets[1]:
        lines.append(f"{TARGET}: {targets[0]} | {targets[1]}, which concerns reports only")
    versions = [run.experiment.get("version") for run in (one, other)]
    if versions[0] != versions[1]:
        lines.append(f"written by undrift {versions[0]} and {versions[1]}")
    console = Console(highlight=False)
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)
    if told or partings:
        sys.exit(1)


def settings(a: Run, b: Run) -> Iterator[str]:
    """A line for each setting that differs, in the order of the settings."""
    for key in dict.fromkeys([*a.experiment, *b.experiment]):
        values = [run.experiment.get(key) for run in (a, b)]
        if key == "algorithms":
            yield from _algorithms(*([arm.name for arm in run.arms] for run in (a, b)))
        elif key not in NOT_SETTINGS | {TARGET} and values[0] != values[1]:
            yield from _unlike(key, *values)


def _algorithms(a: Sequence[str], b: Sequence[str]) -> Iterator[str]:
    """The algorithms that only one run has."""
    for which, those, others in (("first", a, b), ("second", b, a)):
        if alone := [name for name in those if name not in others]:
            yield f"algorithms only in the {which}: {', '.join(alone)}"
    if a != b and set(a) == set(b):
        yield "algorithms: the same in another order"


def _unlike(key: str, a: Any, b: Any) -> Iterator[str]:
    """The parameters in which two values of a setting differ, or the values."""
    flats = [spread({key: value}) for value in (a, b)]
    whole = (key,)
    if len(flats[0]) < 2 or flats[0].get(whole) != flats[1].get(whole):
        yield f"{key}: {a} | {b}"
        return
    for path in dict.fromkeys([*flats[0], *flats[1]]):
        values = [flat.get(path) for flat in flats]
        if values[0] != values[1]:
            yield f"{'.'.join(path)}: {' | '.join(map(plain, values))}"


def results(a: Run, b: Run) -> Iterator[Parting]:
    """For each algorithm and seed of both runs whose results differ, where they part."""
    theirs = {arm.name: arm for arm in b.arms}
    for arm in a.arms:
        other = theirs.get(arm.name)
        for seed in arm.seeds if other else ():
            if other and seed in other.seeds and (found := _part(arm, other, seed)):
                yield found


def _part(a: Arm, b: Arm, seed: int) -> Parting | None:
    """A differing value, a missing round, or another failure."""
    trial = f"{a.label}, seed {seed}"
    one, other = a.curves.get(seed), b.curves.get(seed)
    if one and other and (found := _values(trial, one, other)):
        return found
    rounds = [set() if c is None else set(c.rounds.tolist()) for c in (one, other)]
    if alone := rounds[0] ^ rounds[1]:
        t = min(alone)
        return Parting(trial, f"round {t} is only in the {'first' if t in rounds[0] else 'second'}")
    ends = [arm.failures.get(seed) for arm in (a, b)]
    says = ["no failure" if v is None else f"ended in round {v.round}: {v.reason}" for v in ends]
    return None if ends[0] == ends[1] else Parting(trial, " | ".join(says))


def _values(trial: str, a: TrialRecord, b: TrialRecord) -> Parting | None:
    """The first round in which a quantity differs, and how far the curves come apart."""
    rounds, here, there = np.intersect1d(a.rounds, b.rounds, return_indices=True)
    names = [name for name in a.values if name in b.values and name != CLOCK]
    x = np.array([a.values[name][here] for name in names])
    y = np.array([b.values[name][there] for name in names])
    unequal = (x != y) & ~(np.isnan(x) & np.isnan(y))
    if not unequal.any():
        return None
    known = [QUANTITIES.get(name) for name in names]  # None for what only these runs record
    least = np.array([[one.magnitude if one else 0.0] for one in known])
    with np.errstate(invalid="ignore"):
        sizes = np.abs(x - y) / np.maximum(np.maximum(np.abs(x), np.abs(y)), least)
    sizes = np.where(unequal, np.nan_to_num(sizes, nan=np.inf), 0.0)
    first = int(np.argmax(unequal.any(axis=0)))
    which = np.flatnonzero(unequal[:, first])
    more = f", and {len(which) - 1} quantities more" if which[1:].size else ""
    values = f"{float(x[which[0], first])!r} | {float(y[which[0], first])!r}"
    # Shares jump by whole samples, however small the cause is.
    smooth = [k for k in which if not ((one := known[k]) and one.share)] or list(which)
    name, t = np.unravel_index(np.argmax(sizes), sizes.shape)
    return Parting(
        trial,
        f"round {rounds[first]}, {names[which[0]]}: {values}{more}",
        float(sizes[smooth, first].max()),
        (float(sizes[name, t]), f"{trial}, round {rounds[t]}, {names[name]}"),
    )


def _cause(a: Path, b: Path, size: float) -> Iterator[str]:
    """Whether another arithmetic, and so rounding, may be what makes two runs differ."""
    one, other = _arithmetic(a), _arithmetic(b)
    rounding = "as rounding does" if size <= ROUNDING else "which is more than rounding does"
    if not one or not other:
        whose = "both" if not one and not other else "the first" if not one else "the second"
        yield f"what the arithmetic of {whose} was is not recorded, so the cause cannot be told"
        yield f"where they part, they differ by {size:.2g}, {rounding}"
        return
    keys = dict.fromkeys([*one, *other])
    told = {key: [", ".join(found.get(key, ["none"])) for found in (one, other)] for key in keys}
    unlike = [key for key, (x, y) in told.items() if x != y or len(one.get(key, ())) > 1]
    if not unlike:
        said = ", ".join(f"{key} {values[0]}" for key, values in told.items())
        yield f"the same arithmetic ({said}): a real difference, not one of rounding"
        return
    yield "other arithmetic: " + "; ".join(f"{key}: {' | '.join(told[key])}" for key in unlike)
    yield f"where they part, they differ by {size:.2g}, {rounding}"


def _arithmetic(folder: Path) -> dict[str, list[str]]:
    """What decided the bits of a run, with all values that its sessions had; old runs tell none."""
    from undrift.runs.identity import stored_sessions

    found: dict[str, list[str]] = {}
    for session in stored_sessions(folder):
        told = session.get("arithmetic")
        if not isinstance(told, dict):
            return {}
        for key, value in recorded(told).items():
            if str(value) not in (values := found.setdefault(str(key), [])):
                values.append(str(value))
    return found
