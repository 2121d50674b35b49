"""An experiment: several algorithms on the same data, cohorts and batches, over several seeds."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undrift.batches import Local
from undrift.config import Config, UndriftError, flag, member, parse, real, unknown, whole
from undrift.core import Algorithm
from undrift.cost import RoundCost
from undrift.data.federated import FederatedData
from undrift.data.partition import PARTITIONS, Partition, federate
from undrift.data.source import DataSet, Source
from undrift.data.sources import dataset
from undrift.data.text import Sequences
from undrift.engines import Engine, usual_engine
from undrift.metrics import Meter
from undrift.models import MODELS, Model
from undrift.names import algorithm
from undrift.rng import Keyed, stream, torch_stream
from undrift.rounds import Round, rounds
from undrift.sampling import SAMPLERS, Sampler, Urn
from undrift.task import Task, suitable_loss


@dataclass(frozen=True)
class Experiment(Config):
    """What is compared, on what, and how; nothing of where it runs.

    rounds, seeds   length of each run, and one run for every seed
    every           rounds between two evaluations on the test data
    validation      clients that do not train; the deployed model is evaluated on their samples too
    target          accuracy whose price in rounds, bytes and FLOPs is reported
    dropout         chance that a client fails to deliver in a round
    all_clients     also evaluate the mean of all clients' last models (costs memory)

    Wherever an object is expected, the text that names it will do: `sampler="Uniform(5)"`.
    """

    _: KW_ONLY
    algorithms: tuple[Algorithm, ...]
    data: DataSet = member(DataSet)
    partition: Partition = member(Partition)
    model: Model = member(Model)
    local: Local = member(Local)
    sampler: Sampler = member(Sampler)
    rounds: int = whole(100, ge=1)
    seeds: tuple[int, ...] = (0,)
    every: int = whole(5, ge=1)
    validation: int = whole(0, ge=0)
    target: float | None = real(None, gt=0, le=1, optional=True)
    dropout: float = real(0.0, ge=0, le=1)
    all_clients: bool = flag(False)

    def __post_init__(self) -> None:
        for name, read in TEXTS.items():
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, read(getattr(self, name)))
        super().__post_init__()
        for name in ("algorithms", "seeds"):
            if not isinstance(getattr(self, name), list | tuple):
                raise UndriftError(f"{name}={getattr(self, name)!r}: give a list")
        made = tuple(algorithm(a) if isinstance(a, str) else a for a in self.algorithms)
        object.__setattr__(self, "algorithms", made)
        object.__setattr__(self, "seeds", tuple(self.seeds))
        if not self.algorithms:
            raise UndriftError("name at least one algorithm, such as fedavg or adabest")
        twice = {repr(a) for a in self.algorithms if self.algorithms.count(a) > 1}
        if twice:
            raise UndriftError(f"{', '.join(sorted(twice))} is named twice")
        whole_numbers = all(isinstance(seed, int) and seed >= 0 for seed in self.seeds)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or not whole_numbers:
            raise UndriftError(f"seeds={self.seeds}: give different whole numbers >= 0")

    @classmethod
    def from_toml(cls, path: str | Path) -> Experiment:
        """The experiment in a TOML file, whose keys and values are those of `resolved`."""
        try:
            settings = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UndriftError(f"{path} cannot be read: {error}") from None
        needed = {f.name: f.default is MISSING for f in fields(cls)}
        for key in settings:
            if key not in needed:
                raise UndriftError(f"{path}: {unknown('setting', key, needed)}")
        if missing := [key for key, must in needed.items() if must and key not in settings]:
            raise UndriftError(f"{path}: {', '.join(missing)} must be given")
        try:
            return cls(**settings)
        except UndriftError as error:
            raise UndriftError(f"{path}: {error}") from None

    def resolved(self) -> dict[str, Any]:
        """The experiment as plain text and numbers, enough to repeat it."""
        return {
            "algorithms": [repr(one) for one in self.algorithms],
            "data": repr(self.data),
            "partition": repr(self.partition),
            "model": repr(self.model),
            "local": repr(self.local),
            "sampler": repr(self.sampler),
            "rounds": self.rounds,
            "seeds": list(self.seeds),
            "every": self.every,
            "validation": self.validation,
            "target": self.target,
            "dropout": self.dropout,
            "all_clients": self.all_clients,
        }

    @property
    def hash(self) -> str:
        """The experiment's identity: a hash of its resolved form."""
        text = json.dumps(self.resolved(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def prepare(self, seed: int) -> tuple[Task, FederatedData]:
        """The task and the federated data of one seed."""
        source = self.data.load(seed)
        data = federate(source, self.partition, seed, self.validation)
        shape = tuple(data.example.shape[1:])
        with torch_stream(seed, "initial model"):
            model = self.model.build(shape, source.classes, _words(source))
        return Task(model, suitable_loss(data.targets)), data

    def check(self) -> tuple[Task, FederatedData]:
        """Refuse what cannot work before anything runs; the first seed's task and data."""
        task, data = self.prepare(self.seeds[0])
        rng = stream(self.seeds[0], "cohort", 1)
        everyone = np.arange(len(data))
        self.sampler.draw(Urn(1, everyone, data.sizes, rng, self.sampler.start(len(data))))
        rows = data.rows(int(np.argmax(data.sizes)))[: self.local.batch_size]
        try:
            with Keyed(torch.Generator()):
                task.gradient(task.x0, task.unpack(task.buffers0), *data.batch(rows))
        except Exception as error:  # whatever a model may raise
            raise UndriftError(f"{self.model!r} cannot train on {self.data!r}: {error}") from None
        return task, data

    def run(
        self,
        made: Algorithm,
        seed: int,
        task: Task,
        data: FederatedData,
        engine: Engine | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Run one algorithm on a seed's task and data, yielding metrics at each evaluation.

        `engine` is where it runs, and no part of the experiment; the fastest if not given.
        A run whose model or whose whole cohort diverges ends with a "verdict" in its last row.
        """
        cost = RoundCost.of(made, task, data.example)
        engine = engine or usual_engine()
        meter = Meter(made, task, data, cost, engine)
        for round in rounds(
            made,
            task,
            data,
            total=self.rounds,
            sampler=self.sampler,
            local=self.local,
            seed=seed,
            engine=engine,
            dropout=self.dropout,
            keep_models=self.all_clients,
        ):
            meter.count(round)
            verdict = _verdict(round)
            if verdict or round.t % self.every == 0 or round.t == self.rounds:
                row = {"algorithm": repr(made), "seed": seed} | meter.row(round)
                yield row | {"verdict": verdict} if verdict else row
            if verdict:
                return


TEXTS: dict[str, Callable[[str], Config | DataSet]] = {
    "data": dataset,
    "partition": lambda text: parse(text, PARTITIONS, "partition"),
    "model": lambda text: parse(text, MODELS, "model"),
    "local": lambda text: parse(text, {"Local": Local}, "local work"),
    "sampler": lambda text: parse(text, SAMPLERS, "sampler"),
}
"""how texts become what an experiment is made of"""


def _words(source: Source) -> tuple[str, ...]:
    """What the numbers in texts stand for, where the data set knows."""
    return source.transform.words if isinstance(source.transform, Sequences) else ()


def _verdict(round: Round) -> str | None:
    """Why a run cannot go on, if it cannot."""
    if not bool(torch.isfinite(round.server.x).all()):
        return "the cloud model is not finite"
    reasons = set(round.dropped.values())
    if round.cohort and not round.delivered and all("diverged" in reason for reason in reasons):
        return f"all clients {min(reasons)}"
    return None
