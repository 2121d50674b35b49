"""Running and collecting the cells of papers' items, for `undrift paper`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from undrift.cli.running import Options, train
from undrift.config import UndriftError
from undrift.papers import FOLDER, SMOKE
from undrift.system.signals import Terminated, terminable

if TYPE_CHECKING:
    from undrift.experiment.experiment import Experiment
    from undrift.papers.item import Cell, Item, Row
    from undrift.papers.results import Runs
    from undrift.papers.running import Job

SHOWN = 8
"""choices that an error lists"""


def own_results(results: Path | None) -> Path:
    """The folder for results: in a clone the package's own, which is under version control."""
    if results is not None:
        return results
    clone = FOLDER.parent.parent.name == "src" and (FOLDER.parents[2] / "pyproject.toml").exists()
    return FOLDER if clone else Path("papers")


def folders(results: Path | None) -> list[Path]:
    """Where results are read from: the package's own, then the user's."""
    own = own_results(results)
    return [FOLDER] if own == FOLDER else [FOLDER, own]


def existing(results: Path | None) -> Path | None:
    """The folder that --results gives to a command that only reads it."""
    if results is not None and not results.is_dir():
        raise UndriftError(
            f"--results {results}: there is no such folder; give the one of `undrift paper run`"
        )
    return results


def run_job(job: Job, options: Options) -> None:
    """Run an experiment and show its progress."""
    try:
        with terminable():
            train(job.experiment, job.folder, options, keep_states=False)
    except KeyboardInterrupt as stop:
        sys.stderr.write("stopped; the same command goes on\n")
        sys.exit(143 if isinstance(stop, Terminated) else 130)


def collect_done(
    console: Console,
    item: Item,
    cells: Sequence[Cell],
    scale: str,
    runs: Runs,
    results: Path | None,
) -> None:
    """Collect what is done, and say so if there is something new."""
    from undrift.papers.results import collect, keep, results_file

    folder = own_results(results)
    if scale == SMOKE and results is None:
        return
    new = keep(item, *collect(item, cells, scale, runs), folder)
    if new:
        what = "new result" if new == 1 else "new results"
        say(console, f"{item.id}: {new} {what} in {results_file(item, folder)}")


def chosen_cells(
    item: str, cells: str, scale: str, seeds: int | None, rows: Sequence[str] = ()
) -> list[tuple[Item, list[Cell]]]:
    """Items and their cells as asked for on the command line."""
    from undrift.papers.catalogue import items
    from undrift.papers.item import KINDS

    every = list(items(item))
    found = [one for one in every if one.kind == "experiment"]
    if not found:
        kinds = " or ".join(dict.fromkeys(KINDS[one.kind] for one in every))
        raise UndriftError(f"{item} {kinds}: it has no cells or scales")
    chosen = [(one, one.cells(scale, seeds, cells)) for one in found]
    if not any(some for _, some in chosen):
        ids = [*dict.fromkeys(id for one in found for id in one.ids)]
        raise UndriftError(
            f"--cells {cells!r}: {item} has no such cell; the first are {'; '.join(ids[:4])}"
        )
    labels = dict.fromkeys(row.label for _, some in chosen for cell in some for row in cell.rows)
    for pattern in rows:
        if not any(fnmatchcase(label, pattern) for label in labels):
            there = "; ".join(labels)
            raise UndriftError(f"--rows {pattern!r}: no such row; there are {there}")
    if rows:
        fewer = [(one, [cell.only(rows) for cell in some]) for one, some in chosen]
        chosen = [(one, [cell for cell in some if cell.rows]) for one, some in fewer]
    return chosen


def as_toml(cells: Sequence[Cell]) -> str:
    """The experiment of these cells as a file; an error tells how to choose if there are more."""
    found = [(cell, experiment) for cell in cells for experiment in cell.experiments()]
    if len(found) == 1:
        return found[0][1].to_toml()
    choices = [
        f'--cells "{cell.id}"'
        + "".join(f' --rows "{row.label}"' for row in cell.rows if _has(experiment, row))
        for cell, experiment in found[:SHOWN]
    ]
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    lines = "\n  ".join([f"these are {len(found)} experiments; a file has one:", *choices, *more])
    raise UndriftError(lines)


def _has(experiment: Experiment, row: Row) -> bool:
    """Whether a row is in the experiment that rows with the same settings share."""
    made, seeds = experiment.algorithms, experiment.seeds
    return replace(row.experiment, algorithms=made, seeds=seeds, stop=()) == experiment


def named(cell: Cell, experiment: Experiment) -> Iterator[str]:
    """What the rows of an experiment are called while it runs, where that is not their label."""
    from undrift.experiment.registry import labels

    called = dict(zip(experiment.algorithms, labels(experiment.algorithms), strict=True))
    for row in cell.rows:
        for made in row.algorithms if _has(experiment, row) else ():
            if called.get(made, row.label) != row.label:
                yield f"{row.label} is {called[made]}"


def time_left(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
