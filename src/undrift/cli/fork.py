"""`undrift fork`: a new run from the state of another one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from undrift.cli.running import Options, OwnFiles, this_command
from undrift.cli.running import run as go
from undrift.cli.whole import Whole
from undrift.system.signals import terminable


def fork(
    run: Path,
    /,
    *,
    at: Whole,
    algorithm: Annotated[list[str], Parameter(negative="", consume_multiple=True)],
    source: str | None = None,
    rounds: Whole | None = None,
    fresh: bool = False,
    out: Path | None = None,
    code: OwnFiles = (),
    options: Options = Options(),
) -> None:
    """Start a new run from the state that another one had after a round.

    Example: undrift fork runs/3f2a90c1d7be --at 200 --algorithm "AdaBest(mu=0.05)" --source AdaBest

    Data, partition, model, cohorts and batches are those of the other run. An algorithm that
    remembers the same things as the source goes on with all of them; one that remembers nothing
    goes on with the model; for others, --fresh lets them begin with the model alone.

    Parameters
    ----------
    run
        Run directory to start from; `undrift ls` lists them.
    at
        Round after which the new run starts.
    algorithm
        Algorithm of the new run, or several.
    source
        Algorithm of the other run whose state is used, if it has several: a name from its table.
    rounds
        Last round of the new run; that of the other one if not given.
    fresh
        Take over the model alone.
    out
        Folder for the results and the report; runs/HASH if not given.
    code
        A file of your own that the other run uses, if you have not run it here before.
    """
    from undrift.cli.progress import show_steps
    from undrift.data.files.fetch import use_data_dir
    from undrift.report import read_run
    from undrift.report.summary import find_arm
    from undrift.runs.fork import forked, plant
    from undrift.runs.identity import last_data_dir

    options = replace(options, data_dir=options.data_dir or last_data_dir(run))
    use_data_dir(options.data_dir)
    if source is not None:
        source = find_arm(read_run(run), source, "--source").name
    experiment = forked(
        run, algorithm, round=at, source=source, rounds=rounds, fresh=fresh, code=code
    )
    folder = out or Path("runs") / experiment.hash
    console = Console(stderr=True, quiet=options.json_)
    total = at * len(experiment.seeds)
    planting = plant(experiment, folder, run, this_command(), code)
    try:
        with terminable():
            show_steps(planting, "to the fork", total, console)
    except KeyboardInterrupt:
        sys.stderr.write("stopped before the fork; the same command goes on\n")
        raise
    go(experiment, folder, options)
