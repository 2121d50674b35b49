"""`undrift compare`, `undrift run` and `undrift demo`: the main job, from flags and from files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from undrift.cli.running import Options, run
from undrift.cli.settings import Settings
from undrift.experiment.experiment import Experiment
from undrift.experiment.settings import read_change


def compare(
    *algorithms: Annotated[
        str, Parameter(help="Algorithms, such as fedavg or 'AdaBest(mu=0.02)'.")
    ],
    settings: Settings = Settings(),
    out: Path | None = None,
    dry_run: bool = False,
    options: Options = Options(),
) -> None:
    """Compare algorithms on the same partitions, cohorts and batches.

    Example: undrift compare fedavg scaffold adabest --partition "Dirichlet(clients=100, alpha=0.1)"
    --sampler "Uniform(5)" --epochs 5 --rounds 200 --target 0.8

    Your own code: undrift compare fedavg "./mine.py:Half(rate=0.3)" --model ./nets.py:Net --loss
    ./nets.py:huber --data ./mydata.py:load, or package.module:Name, wherever a name goes.

    To keep it as a file: undrift compare fedavg adabest --epochs 5 --dry-run > mine.toml

    Parameters
    ----------
    out
        Folder for the results and the report; runs/HASH if not given.
    dry_run
        Print the experiment as a TOML file for `undrift run`, and run nothing.
    """
    experiment = settings.experiment(algorithms)
    if dry_run:
        sys.stdout.write(experiment.to_toml())
        return
    run(experiment, out, options)


def run_file(
    file: Path,
    *,
    set_: Annotated[tuple[str, ...], Parameter("--set", negative="", show_default=False)] = (),
    out: Path | None = None,
    dry_run: bool = False,
    options: Options = Options(),
) -> None:
    """Run the experiment in a TOML file.

    Example: undrift run examples/demo.toml --set rounds=20 --set local.lr=0.05
    --set partition.alpha=0.3 --set "algorithms=['fedavg', 'AdaBest(mu=0.05)']"

    Its keys are the flags of `undrift compare`, but what clients do is a table `[local]` with lr,
    epochs, batch_size ... `undrift compare fedavg --dry-run` prints such a file.

    Parameters
    ----------
    file
        The experiment.
    set_
        Replace a setting, NAME=VALUE; may be given more than once. None takes one away, such as
        local.epochs=None before local.steps=10.
    out
        Folder for the results and the report; runs/HASH if not given.
    dry_run
        Print the experiment as a TOML file for `undrift run`, and run nothing.
    """
    experiment = Experiment.from_toml(file, dict(map(read_change, set_)), flag="--set ")
    if dry_run:
        sys.stdout.write(experiment.to_toml())
        return
    run(experiment, out, options)


def demo(*, out: Path = Path("demo-report")) -> None:
    """Compare six optimisers on handwritten digits with strongly skewed clients; about a minute.

    100 clients hold 14 digits each, mostly of two or three kinds; 5 take part in a round.
    All algorithms have their default settings, but AdaBest chooses its beta itself.

    Parameters
    ----------
    out
        Folder for the results and the report.
    """
    compare(
        "FedAvg()",
        "SCAFFOLD()",
        "FedDyn()",
        "AdaBest(beta='auto')",
        "FedGBO(SGDm())",
        "FedGLAD(FedAvg())",
        settings=Settings(
            data="digits",
            partition="Dirichlet(clients=100, alpha=0.1)",
            sampler="Uniform(5)",
            lr=0.1,
            epochs=5,
            batch_size=16,
            rounds=120,
            seeds=3,
            target=0.9,
        ),
        out=out,
    )
