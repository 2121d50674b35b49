"""`undrift extend`: more seeds, rounds or algorithms for a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from undrift.cli.running import Options, OwnFiles
from undrift.cli.running import run as go
from undrift.cli.whole import Whole


def extend(
    run: Path,
    /,
    *,
    seeds: Whole | None = None,
    rounds: Whole | None = None,
    algorithm: Annotated[
        tuple[str, ...], Parameter(negative="", consume_multiple=True, show_default=False)
    ] = (),
    code: OwnFiles = (),
    options: Options = Options(),
) -> None:
    """Let a run grow by seeds, rounds or algorithms; only what is missing is run.

    Example: undrift extend runs/3f2a90c1d7be --seeds 5 --rounds 300 --algorithm "AdaBest(mu=0.05)"

    It ends with the same bits as if all had been asked for at once. To run the larger experiment
    with `undrift compare` or `undrift run` and the same --out does the same. Trials that diverged
    stay as they are. If it is interrupted, `undrift resume` goes on with it.

    Parameters
    ----------
    run
        Run directory, finished or interrupted; `undrift ls` lists them.
    seeds
        Number of seeds that it shall have.
    rounds
        Rounds that every trial shall have.
    algorithm
        Algorithm to be added, or several.
    code
        A file of your own that the run uses, such as ./mine.py, if you have not run it here before.
    """
    from undrift.runs.extend import extended
    from undrift.runs.identity import last_data_dir

    larger = extended(run, seeds=seeds, rounds=rounds, algorithms=algorithm, code=code)
    go(larger, run, replace(options, data_dir=options.data_dir or last_data_dir(run)))
