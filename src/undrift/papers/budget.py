"""Budgets: what an experiment takes in client steps, operations and hours."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from undrift.config import UndriftError
from undrift.core import Algorithm
from undrift.experiment.experiment import Experiment
from undrift.later import torch
from undrift.measure.cost import RoundCost, client_work, forward_flops
from undrift.models import BiLSTM, Model
from undrift.models.distilbert import PADDING, DistilBERT
from undrift.papers import FOLDER
from undrift.papers.item import Cell, Item
from undrift.papers.results import Result


@dataclass(frozen=True)
class DataFacts:
    """What data.toml says about a data set."""

    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    clients: int | None = None
    words: int | None = None
    samples: int | None = None


@cache
def data_facts() -> dict[str, DataFacts]:
    """Text of a data set → its facts."""
    found = tomllib.loads((FOLDER / "data.toml").read_text(encoding="utf-8"))
    return {name: DataFacts(**one | {"shape": tuple(one["shape"])}) for name, one in found.items()}


@dataclass(frozen=True)
class Budget:
    """The work of some trials.

    steps  local steps of all clients
    flops  operations of clients and tests; None if the model cannot be made here
    why    why it cannot
    """

    trials: int
    steps: float
    flops: float | None
    why: str = ""

    def hours(self, rate: float | None) -> float | None:
        """The time, at so many operations per second."""
        return None if self.flops is None or not rate else self.flops / rate / 3600


def total(budgets: Iterable[Budget]) -> Budget:
    """The sum of budgets."""
    every = list(budgets)
    flops = [one.flops for one in every]
    known = [one for one in flops if one is not None]
    return Budget(
        sum(one.trials for one in every),
        sum(one.steps for one in every),
        sum(known) if len(known) == len(flops) else None,
        next((one.why for one in every if one.why), ""),
    )


def trial_budget(experiment: Experiment, made: Algorithm) -> Budget:
    """The work of one trial; data sets without facts count as of unknown size."""
    facts = data_facts()[repr(experiment.data)]
    local = experiment.local
    clients = getattr(experiment.partition, "clients", None) or facts.clients or 1
    held = (facts.samples or facts.train) / clients
    size = min(local.batch_size, held) if not local.fills else local.batch_size
    batches = math.floor(held / size) if local.batching == "drop" else math.ceil(held / size)
    cohort = experiment.sampler.largest or round(clients * getattr(experiment.sampler, "rate", 0.1))
    steps = cohort * local.count(max(batches, 1))
    tests = experiment.rounds // experiment.every + 1
    rounds = experiment.rounds + experiment.all_updates * tests * clients / cohort
    try:
        n, forward = _model(experiment.model, facts)
    except UndriftError as error:  # its package is not installed
        return Budget(1, rounds * steps, None, str(error).partition(";")[0])
    cost = RoundCost(n, forward, dict(_work(made)))
    train = cost.flops(steps, round(steps * size), round(cohort * held), cohort)
    models = 1 + (made.deploys != "cloud") + experiment.all_clients
    test = tests * models * (experiment.test_subset or facts.test) * forward
    return Budget(1, rounds * steps, rounds * train + test)


_work = cache(client_work)


@cache
def _model(model: Model, facts: DataFacts) -> tuple[int, int]:
    """Parameters of a model, and the operations of a forward pass; needs no files."""
    if isinstance(model, DistilBERT):
        model = replace(model, weights=None)
    if isinstance(model, BiLSTM):
        model = replace(model, vectors=None)
    words = [str(place) if place else PADDING for place in range(facts.words or 0)]
    dtype = torch.int64 if facts.words else torch.float32
    made = model.build(facts.shape, facts.classes, words)
    example = torch.zeros((1, *facts.shape), dtype=dtype)
    return sum(p.numel() for p in made.parameters()), forward_flops(made, example)


def cell_budget(cell: Cell, done: frozenset[str] = frozenset()) -> Budget:
    """The work of all trials of a cell that are not done."""
    left: dict[str, Budget] = {}
    for row, made, seed in cell.trials():
        if (trial := row.trial(made, seed)) not in done:
            left[trial] = trial_budget(row.experiment, made)
    return total(left.values())


@dataclass
class Rates:
    """Operations per second by model, of its fastest trial: the others had to share the machine."""

    measured: Mapping[str, float]

    @classmethod
    def of(cls, results: Iterable[tuple[Item, Result]]) -> Rates:
        """From the trials that were run."""
        best: dict[str, float] = {}
        models: dict[tuple[str, str, str], str] = {}
        for item, result in results:
            place = (item.id, result.cell, result.scale)
            if place not in models:
                (cell,) = [one for one in item.cells(result.scale) if one.id == result.cell]
                models[place] = repr(cell.rows[0].experiment.model)
            speed = result.flops / result.seconds if result.seconds else 0.0
            best[models[place]] = max(best.get(models[place], 0.0), speed)
        return cls(best)

    def of_model(self, model: Model) -> float | None:
        """The rate of a model; of one that was not run, the median of the others."""
        known = self.measured.get(repr(model))
        return known or (median(self.measured.values()) if self.measured else None)
