"""`undrift sweep`: every combination of some settings, for a sensitivity figure."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from undrift.cli.running import Options, end_diverged, resumable
from undrift.cli.settings import Settings
from undrift.cli.tune import Changes, Over, read_over, refuse_tracking, the_file
from undrift.experiment.settings import read_change
from undrift.runs.layout import RunFile

if TYPE_CHECKING:
    from undrift.experiment.experiment import Experiment


def sweep(
    *algorithms: Annotated[
        str, Parameter(help="Algorithms, such as adabest, or one TOML file with an experiment.")
    ],
    over: Over = (),
    settings: Settings = Settings(),
    set_: Changes = (),
    out: Path | None = None,
    options: Options = Options(),
) -> None:
    """Run every combination of some settings, to see how much they matter.

    Example: undrift sweep adabest --over AdaBest.beta=0.2,0.6,0.9 --over local.lr=0.03,0.1,0.3

    Results are those on the test data, as in the papers' sensitivity figures; to choose settings,
    use `undrift tune`. Interrupted, the same command or `undrift resume` goes on; given twice, two
    processes share the work.

    Parameters
    ----------
    over
        What to vary, NAME=VALUES; may be given more than once. A name is that of a class and of its
        field: AdaBest.beta, ServerOpt.Adam.lr, local.lr, sampler.clients.
    set_
        Replace a setting of the file, NAME=VALUE, as in `undrift run`.
    out
        Folder of the sweep; runs/sweep-HASH if not given.
    """
    from undrift.experiment.experiment import Experiment

    if file := the_file(algorithms, settings, Settings(), set_):
        made = Experiment.from_toml(file, dict(map(read_change, set_)), flag="--set ")
    else:
        made = settings.experiment(algorithms)
    run_sweep(made, read_over(over), out or Path("runs") / f"sweep-{made.hash}", options)


def run_sweep(experiment: Experiment, over: dict[str, Any], folder: Path, options: Options) -> None:
    """Run a sweep, or what is left of it, showing what happens."""
    from undrift.data.files.fetch import use_data_dir
    from undrift.tune.sweep import sweep as go
    from undrift.tune.tables import settings_text

    refuse_tracking(options)
    use_data_dir(options.data_dir)
    happening = go(
        experiment,
        over,
        folder,
        **options.session(),
    )
    console, sound = Console(), False
    with resumable(folder), closing(happening):
        for event in happening:
            if event.final is None:
                continue
            point, results = event.point, list(event.final["test"].values())
            sound = sound or bool(results)
            told = {"event": "point", "algorithm": point.arm.label, "settings": point.settings}
            if options.json_:
                sys.stdout.write(json.dumps(told | event.final) + "\n")
                sys.stdout.flush()
            else:
                shown = ", ".join("–" if one is None else f"{one:.4f}" for one in results)
                line = f"{point.name}: {shown or 'failed'}   {settings_text(point.settings)}"
                console.print(Text(line), soft_wrap=True)
    if not options.json_:
        console.print(Text(f"report: {folder / RunFile.REPORT}"), soft_wrap=True)
    if not sound:
        end_diverged()
