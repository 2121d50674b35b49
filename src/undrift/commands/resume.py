"""`undrift resume`: go on with a run that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from undrift.commands.running import run as go
from undrift.data.fetch import use_data_dir
from undrift.identity import last_data_dir, stored_experiment
from undrift.runner import SAVE_EVERY


def resume(
    run: Path,
    /,
    *,
    data_dir: Path | None = None,
    workers: int | None = None,
    save_every: float = SAVE_EVERY,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """Go on with a run that was interrupted, from its last checkpoint.

    Example: undrift resume runs/3f2a90c1d7be

    It ends with the same bits as if it had never stopped. To run the same experiment again with
    `undrift run` or `undrift compare` does the same.

    Parameters
    ----------
    run
        Run directory; `undrift ls` lists them.
    data_dir
        Folder that holds the data set's files; the one of the last session if not given.
    workers
        Clients that run side by side; one for each core if not given. Results do not depend on it.
    save_every
        Seconds between two checkpoints.
    json_
        Print one JSON object an event and no tables.
    """
    experiment = stored_experiment(run)
    data_dir = data_dir or last_data_dir(run)
    use_data_dir(data_dir)
    go(
        experiment,
        run,
        workers=workers,
        save_every=save_every,
        data_dir=data_dir,
        as_json=json_,
    )
