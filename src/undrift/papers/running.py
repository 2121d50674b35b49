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
from undrift.papers.item import Cell, Item
from undrift.papers.results import Runs
from undrift.runs.identity import has_room


@dataclass(frozen=True)
class Job:
    """An experiment of a cell that is not done yet, and the folder for it."""

    experiment: Experiment
    folder: Path

    @property
    def work(self) -> int:
        """How often clients train in it, as a rough measure."""
        trials = len(self.experiment.seeds) * len(self.experiment.algorithms)
        return self.experiment.rounds * (self.experiment.sampler.largest or 10) * trials


def jobs(item: Item, cell: Cell, scale: str, runs: Runs, kept: Collection[str] = ()) -> list[Job]:
    """What is left to run. Trials that are done in any folder are not run again, nor those `kept`.

    An experiment that was begun under another name is resumed there.
    """
    found: list[Job] = []
    for experiment in cell.experiments():
        if _left(experiment, runs, kept) is None:
            continue
        begun = [runs.folders[experiment.hash]] if experiment.hash in runs.folders else []
        named = (runs.folder / name for name in _names(item, cell, scale))
        taken = [job.folder for job in found]
        for folder in chain(begun, (one for one in named if one not in taken)):
            smaller = _left(experiment, runs, kept, folder)
            if smaller and has_room(folder, smaller):
                found.append(Job(smaller, folder))
                break
    return found


def _left(
    experiment: Experiment, runs: Runs, kept: Collection[str], folder: Path | None = None
) -> Experiment | None:
    """The experiment with what is not done; in another folder, if one is given."""

    def done(made: Algorithm, seed: int) -> bool:
        trial = replace(experiment, algorithms=(made,), seeds=(seed,)).hash
        if trial in runs.trials:
            return runs.done(trial) and runs.trials[trial].run.folder != folder
        return trial in kept

    every = product(experiment.algorithms, experiment.seeds)
    left = [one for one in every if not done(*one)]
    algorithms = tuple(made for made in experiment.algorithms if any(made == a for a, _ in left))
    seeds = tuple(seed for seed in experiment.seeds if any(seed == s for _, s in left))
    return replace(experiment, algorithms=algorithms, seeds=seeds) if left else None


def _names(item: Item, cell: Cell, scale: str) -> Iterator[str]:
    """Names for the run directories of a cell's experiments: a, a-2, a-3 and so on."""
    parts = [item.paper, item.name, cell.id, *([scale] if scale != FULL else [])]
    name = "-".join(re.sub(r"[^\w.=%+]+", "-", part).strip("-") for part in parts)
    return (f"{name}-{number}" if number > 1 else name for number in count(1))
