"""`undrift compare`, `undrift run` and `undrift demo`: the main job, from flags and from files."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from undrift.cli.running import Options, run
from undrift.cli.whole import Whole
from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.experiment.settings import read_change
from undrift.training.work import Local


def compare(
    *algorithms: Annotated[
        str, Parameter(help="Algorithms, such as fedavg or 'AdaBest(mu=0.02)'.")
    ],
    data: str = "digits",
    target_column: str | None = None,
    client_column: str | None = None,
    partition: str | None = None,
    model: str = "mlp",
    loss: str | None = None,
    sampler: str = "Uniform(5)",
    rounds: Whole = Experiment.rounds,
    seeds: Whole = 3,
    lr: float = Local.lr,
    lr_decay: float = Local.lr_decay,
    weight_decay: float = Local.weight_decay,
    batch_size: Whole = Local.batch_size,
    epochs: float | None = Local.epochs,
    steps: Whole | None = Local.steps,
    batching: str = Local.batching,
    every: Whole = Experiment.every,
    validation: Whole = Experiment.validation,
    target: float | None = Experiment.target,
    dropout: float = Experiment.dropout,
    all_clients: bool = Experiment.all_clients,
    fairness: bool = Experiment.fairness,
    client_test: float = Experiment.client_test,
    personal_steps: Whole = Experiment.personal_steps,
    test_subset: Annotated[
        Whole, Parameter(["--test-subset", "--test-samples"])
    ] = Experiment.test_subset,
    stop: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
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
    data
        Data set; `undrift list data` shows them. Or the path of your own CSV or Parquet file.
    target_column
        Column of your file to predict.
    client_column
        Column of your file that says whose a row is.
    partition
        How the samples are shared out among clients; `undrift list partitions`. With
        --client-column Natural() if not given, else Dirichlet(clients=100, alpha=0.1).
    model
        Network; `undrift list models`.
    loss
        What training makes small; if not given, cross_entropy for classes, next_token for texts,
        squared_error for numbers; or mse, or your own function.
    sampler
        Which clients take part in a round; `undrift list samplers`.
    rounds
        Rounds of training.
    seeds
        Number of repetitions, each with its own partition, start model, cohorts and batches.
    lr
        Local step size.
    lr_decay
        Factor on the step size from round to round.
    weight_decay
        Coupled L2 regularisation, part of every gradient.
    batch_size
        Samples in a mini-batch.
    epochs
        Passes over a client's data in a round, 1 if neither this nor --steps is given; may be 0.1.
    steps
        Local steps in a round, instead of epochs.
    batching
        What becomes of an epoch's last batch, where samples are left over or a client has too few:
        bootstrap fills it up with samples drawn at random (AdaBest), wrap reads on into the next
        epoch (FedGBO), drop leaves it out (FedGLAD), keep takes it as it is. With full, every batch
        is all samples of the client.
    every
        Rounds between two evaluations on the test data.
    validation
        Clients that are held out: they do not train, and their samples are evaluated as one set.
    target
        Report the rounds, bytes and FLOPs that each algorithm needs to reach this accuracy.
    dropout
        Chance that a client fails to deliver in a round.
    all_clients
        Also evaluate the mean of all clients' last models.
    fairness
        Also measure how accuracy is spread over clients, each on its own samples.
    client_test
        Share of its samples that each client keeps for tests of its own, such as 0.2: it does not
        train on them. Accuracy over clients is then measured on these, and clients.csv written.
    personal_steps
        Also measure clients after so many local steps of SGD from the deployed model, on their own
        test samples if --client-test is given, else on what they train on; 100 clients at most.
    test_subset
        Test on so many samples, of each class its share and always the same, in the last round too;
        0 for all. For large test sets.
    stop
        Rule that ends a trial early, such as "Target(0.9)", "Patience(20)" or "Budget(bytes='2
        GB')", judged at each evaluation; may be given more than once. `undrift list stops`. All are
        reproducible but Budget(seconds=...).
    out
        Folder for the results and the report; runs/HASH if not given.
    dry_run
        Print the experiment as a TOML file for `undrift run`, and run nothing.
    """
    flags = dict(locals())  # which have the names of settings
    from undrift.data.partition.partitions import default_partition
    from undrift.data.sources import dataset

    if seeds < 1:
        raise UndriftError(f"--seeds {seeds}: must be a whole number >= 1")
    flags["seeds"] = tuple(range(seeds))
    flags["data"] = dataset(data, target_column, client_column)
    flags["partition"] = partition or default_partition(client_column)
    flags["local"] = Local(**{field.name: flags[field.name] for field in fields(Local)})
    names = [field.name for field in fields(Experiment) if field.name in flags]
    experiment = Experiment(**{name: flags[name] for name in names})
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
    All algorithms have their default settings.

    Parameters
    ----------
    out
        Folder for the results and the report.
    """
    compare(
        "FedAvg()",
        "SCAFFOLD()",
        "FedDyn()",
        "AdaBest()",
        "FedGBO(SGDm())",
        "FedGLAD(FedAvg())",
        data="digits",
        partition="Dirichlet(clients=100, alpha=0.1)",
        sampler="Uniform(5)",
        lr=0.1,
        epochs=5,
        batch_size=16,
        rounds=120,
        seeds=3,
        target=0.9,
        out=out,
    )
