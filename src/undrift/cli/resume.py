"""`undrift resume`: go on with a run that was interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from undrift.cli.running import Options, OwnFiles
from undrift.cli.running import run as go
from undrift.runs.layout import is_deployment, is_study


def resume(run: Path, /, *, code: OwnFiles = (), options: Options = Options()) -> None:
    """Go on with a run that was interrupted, from its last checkpoint.

    Example: undrift resume runs/3f2a90c1d7be

    It ends with the same bits as if it had never stopped. To run the same experiment again with
    `undrift run` or `undrift compare` does the same. The data are looked for where the last session
    found them. The run of a deployment is served again. A folder of `undrift tune` or `undrift
    sweep` goes on, too; several processes may be at one at the same time.

    Parameters
    ----------
    run
        Run directory, `undrift ls` lists them; or the folder of a study.
    code
        A file of your own that the run uses, such as ./mine.py, if you have not run it here before.
    """
    from undrift.runs.identity import last_data_dir, stored_experiment

    if is_study(run):
        from undrift.cli.tune import go_on

        go_on(run, code, options)
        return
    if is_deployment(run):
        from undrift.cli.deploy import go_on as serve

        serve(run)
        return
    data_dir = options.data_dir or last_data_dir(run)
    go(stored_experiment(run, code), run, replace(options, data_dir=data_dir))
