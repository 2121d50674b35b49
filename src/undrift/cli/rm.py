"""`undrift rm`: remove runs."""

from __future__ import annotations

import sys
from pathlib import Path

from undrift.cli.size import said
from undrift.config import UndriftError
from undrift.runs import disk
from undrift.system.lock import Lock


def rm(*runs: Path, yes: bool = False) -> None:
    """Remove runs, studies and sweeps, with all that belongs to them.

    Example: undrift rm runs/3f2a90c1d7be runs/77aa01c3e5d2 --yes

    A folder that is no run, a run that is going on, and a run with other files in it are left
    alone; then nothing is removed.

    Parameters
    ----------
    runs
        Run directories, or folders of studies and sweeps; `undrift ls` lists them.
    yes
        Do not ask.
    """
    if not runs:
        raise UndriftError("give at least one run directory; `undrift ls` lists them")
    for run in runs:
        disk.refuse_others(run)
        for one in disk.within(run):
            Lock(one).close()  # raises if it is running
    if not yes:
        _ask(runs)
    for run in runs:
        sys.stdout.write(f"removed {run}: {said(disk.remove(run))} freed\n")


def _ask(runs: tuple[Path, ...]) -> None:
    if not sys.stdin.isatty():
        raise UndriftError("nobody can be asked here; give --yes to remove runs")
    sys.stdout.writelines(f"{run}: {said(disk.size(run))}\n" for run in runs)
    if input("remove for good? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UndriftError("nothing was removed")
