"""Running the cells of an item: each experiment in a run directory of its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, product
from pathlib import Path

from undrift.core import Algorithm
from undrift.experiment.experiment import Experiment
from undrift.papers import FULL
from undrift.papers.item import Cell, Item, trial
from undrift.papers.results import Runs
from undrift.runs.identity import has_room


@dataclass(frozen=True)
class Job:
    """An experiment of a cell that is not done yet, and the folder for it."""

    experiment: Experiment
    folder: Path
    work: int
    """how often clients train in its trials that are not done, as a rough measure"""


def jobs(item: Item, cell: Cell, scale: str, runs: Runs, kept: Collection[str] = ()) -> list[Job]:
    """What is left to run. Trials that are done in any folder are not run again, nor those `kept`.

    An experiment that was begun under another name is resumed there.
    """
    found: list[Job] = []
    for part in chain.from_iterable(_parts(whole, runs, kept) for whole in cell.experiments()):
        every = product(part.algorithms, part.seeds)
        left = sum(not runs.done(trial(part, *one)) for one in every)
        if not left:
            continue
        work = part.rounds * (part.sampler.largest or 10) * left
        begun = [runs.folders[part.hash]] if part.hash in runs.folders else []
        named = (runs.folder / name for name in _names(item, cell, scale))
        taken = [job.folder for job in found]
        for folder in chain(begun, (one for one in named if one not in taken)):
            smaller = _without_others(part, runs, folder)
            if has_room(folder, smaller):
                found.append(Job(smaller, folder, work))
                break
    return found


def _parts(whole: Experiment, runs: Runs, kept: Collection[str]) -> Iterator[Experiment]:
    """The experiment without trials that are kept and done in no folder: algorithms by seeds."""
    groups: dict[tuple[int, ...], list[Algorithm]] = {}
    for made in whole.algorithms:
        own = {seed: trial(whole, made, seed) for seed in whole.seeds}
        seeds = tuple(s for s, hash in own.items() if runs.done(hash) or hash not in kept)
        groups.setdefault(seeds, []).append(made)
    for seeds, some in groups.items():
        if seeds:
            yield replace(whole, algorithms=tuple(some), seeds=seeds)


def _without_others(part: Experiment, runs: Runs, folder: Path) -> Experiment:
    """The experiment without algorithms, and seeds, that are done in other folders."""

    def elsewhere(made: Algorithm, seed: int) -> bool:
        hash = trial(part, made, seed)
        return runs.done(hash) and runs.trials[hash].run.folder != folder

    every = product(part.algorithms, part.seeds)
    left = [one for one in every if not elsewhere(*one)]
    algorithms = tuple(made for made in part.algorithms if any(made == a for a, _ in left))
    seeds = tuple(seed for seed in part.seeds if any(seed == s for _, s in left))
    return replace(part, algorithms=algorithms, seeds=seeds)


def _names(item: Item, cell: Cell, scale: str) -> Iterator[str]:
    """Names for the run directories of a cell's experiments: a, a-2, a-3 and so on."""
    parts = [item.paper, item.name, cell.id, *([scale] if scale != FULL else [])]
    name = "-".join(re.sub(r"[^\w.=%+]+", "-", part).strip("-") for part in parts)
    return (f"{name}-{number}" if number > 1 else name for number in count(1))
