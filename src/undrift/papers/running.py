"""Running the cells of an item: each experiment in a run directory of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from undrift.core import Algorithm
from undrift.experiment.experiment import Experiment
from undrift.papers import FULL
from undrift.papers.item import Cell, Item
from undrift.papers.results import Runs


@dataclass(frozen=True)
class Job:
    """An experiment of a cell that is not done yet, and the folder for it."""

    experiment: Experiment
    folder: Path


def jobs(item: Item, cell: Cell, scale: str, runs: Runs) -> list[Job]:
    """What is left to run. Trials that are done in any folder are not run again.

    An experiment that was begun under another name is resumed there.
    """
    found: list[Job] = []
    for place, experiment in enumerate(cell.experiments()):
        own = runs.folder / folder_name(item, cell, scale, place)
        here = runs.folders.get(experiment.hash, own)

        def left(
            made: Algorithm, elsewhere: bool, of: Experiment = experiment, here: Path = here
        ) -> bool:
            """Whether a seed is missing, or done elsewhere only."""
            trials = [replace(of, algorithms=(made,), seeds=(seed,)).hash for seed in of.seeds]
            return not all(
                runs.done(one) and (elsewhere or runs.trials[one].run.folder != here)
                for one in trials
            )

        if any(left(made, elsewhere=True) for made in experiment.algorithms):
            wanted = [made for made in experiment.algorithms if left(made, elsewhere=False)]
            found.append(Job(replace(experiment, algorithms=tuple(wanted)), here))
    return found


def folder_name(item: Item, cell: Cell, scale: str, place: int) -> str:
    """A name for the run directory of a cell's experiment."""
    parts = [item.paper, item.name, cell.id, *([scale] if scale != FULL else [])]
    name = "-".join(re.sub(r"[^\w.=%+]+", "-", part).strip("-") for part in parts)
    return f"{name}-{place + 1}" if place else name


def client_rounds(experiment: Experiment) -> int:
    """How often clients train in an experiment, as a rough measure of its work."""
    trials = len(experiment.seeds) * len(experiment.algorithms)
    return experiment.rounds * (experiment.sampler.largest or 10) * trials
