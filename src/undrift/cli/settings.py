"""The settings of an experiment as flags, for all commands that begin one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

from cyclopts import Parameter

from undrift.cli.whole import Whole
from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.training.work import Local


@Parameter(name="*")
@dataclass(frozen=True)
class Settings:
    """The settings of an experiment, but its algorithms."""

    data: str = "digits"
    """Data set; `undrift list data` shows them. Or the path of your own CSV or Parquet file."""
    target_column: str | None = None
    """Column of your file to predict."""
    client_column: str | None = None
    """Column of your file that says whose a row is."""
    partition: str | None = None
    """How the samples are shared out among clients; `undrift list partitions`. With
    --client-column Natural() if not given, else Dirichlet(clients=100, alpha=0.1)."""
    model: str = "mlp"
    """Network; `undrift list models`."""
    loss: str | None = None
    """What training makes small; if not given, cross_entropy for classes, next_token for texts,
    squared_error for numbers; or mse, or your own function."""
    sampler: str = "Uniform(5)"
    """Which clients take part in a round; `undrift list samplers`."""
    rounds: Whole = Experiment.rounds
    """Rounds of training."""
    seeds: Whole = 3
    """Number of repetitions, each with its own partition, start model, cohorts and batches."""
    lr: float = Local.lr
    """Local step size."""
    lr_decay: float = Local.lr_decay
    """Factor on the step size from round to round."""
    weight_decay: float = Local.weight_decay
    """Coupled L2 regularisation, part of every gradient."""
    batch_size: Whole = Local.batch_size
    """Samples in a mini-batch."""
    epochs: float | None = Local.epochs
    """Passes over a client's data in a round, 1 if neither this nor --steps is given; may be
    0.1."""
    steps: Whole | None = Local.steps
    """Local steps in a round, instead of epochs."""
    batching: str = Local.batching
    """What becomes of an epoch's last batch, where samples are left over or a client has too few:
    bootstrap fills it up with samples drawn at random (AdaBest), wrap reads on into the next
    epoch (FedGBO), drop leaves it out (FedGLAD), keep takes it as it is. With full, every batch
    is all samples of the client."""
    every: Whole = Experiment.every
    """Rounds between two evaluations on the test data."""
    validation: Whole = Experiment.validation
    """Clients that are held out: they do not train, and their samples are evaluated as one set."""
    target: float | None = Experiment.target
    """Report the rounds, bytes and FLOPs that each algorithm needs to reach this accuracy."""
    dropout: float = Experiment.dropout
    """Chance that a client fails to deliver in a round."""
    all_clients: bool = Experiment.all_clients
    """Also evaluate the mean of all clients' last models."""
    all_updates: bool = Experiment.all_updates
    """Also compare the updates of each evaluated round's cohort with those of all clients, which
    train for it."""
    fairness: bool = Experiment.fairness
    """Also measure how accuracy is spread over clients, each on its own samples."""
    client_test: float = Experiment.client_test
    """Share of its samples that each client keeps for tests of its own, such as 0.2: it does not
    train on them. Accuracy over clients is then measured on these, and clients.csv written."""
    personal_steps: Whole = Experiment.personal_steps
    """Also measure clients after so many local steps of SGD from the deployed model, on their own
    test samples if --client-test is given, else on what they train on; 100 clients at most."""
    test_subset: Annotated[Whole, Parameter(["--test-subset", "--test-samples"])] = (
        Experiment.test_subset
    )
    """Test on so many samples, of each class its share and always the same, in the last round too;
    0 for all. For large test sets."""
    stop: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """Rule that ends a trial early, such as "Target(0.9)", "Patience(20)" or "Budget(bytes='2
    GB')", judged at each evaluation; may be given more than once. `undrift list stops`. All are
    reproducible but Budget(seconds=...)."""
    test: bool = Experiment.test
    """Evaluate on the test data."""

    def experiment(self, algorithms: Sequence[str]) -> Experiment:
        """The experiment with these settings."""
        from undrift.data.partition.partitions import default_partition
        from undrift.data.sources import dataset

        if self.seeds < 1:
            raise UndriftError(f"--seeds {self.seeds}: must be a whole number >= 1")
        flags = {field.name: getattr(self, field.name) for field in fields(self)}
        flags["algorithms"] = tuple(algorithms)
        flags["seeds"] = tuple(range(self.seeds))
        flags["data"] = dataset(self.data, self.target_column, self.client_column)
        flags["partition"] = self.partition or default_partition(self.client_column)
        flags["local"] = Local(**{field.name: flags[field.name] for field in fields(Local)})
        names = [field.name for field in fields(Experiment) if field.name in flags]
        return Experiment(**{name: flags[name] for name in names})
