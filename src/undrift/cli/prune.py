"""`undrift prune`: remove checkpoints that are not needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from undrift.cli.size import said
from undrift.config import UndriftError
from undrift.runs import disk


def prune(
    *runs: Path, all_: Annotated[bool, Parameter("--all")] = False, dry_run: bool = False
) -> None:
    """Remove checkpoints that are not needed; results, models and reports stay.

    Example: undrift prune runs/* --all

    Of trials that are done, the last state is kept: `undrift extend --rounds` and `undrift fork` go
    on from there. Trials that were interrupted keep all that `undrift resume` needs.

    Parameters
    ----------
    runs
        Run directories, `undrift ls` lists them; of a study or sweep, all its runs.
    all_
        Remove the last states of trials that are done, too. To extend such a run in rounds, or to
        fork it, then computes all rounds again, with the same results.
    dry_run
        Say what would be freed, and remove nothing.
    """
    if not runs:
        raise UndriftError("give at least one run directory; `undrift ls` lists them")
    for run in runs:
        for one in disk.within(run):
            disk.refuse_no_run(one)
    for run in runs:
        freed = sum(disk.prune(one, everything=all_, dry_run=dry_run) for one in disk.within(run))
        sys.stdout.write(f"{run}: {said(freed)} {'would be ' if dry_run else ''}freed\n")
