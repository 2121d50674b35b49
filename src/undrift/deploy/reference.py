"""The simulation beside a deployment: the same clients asked, and the same ones absent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.engines import Sequential
from undrift.engines.base import ClientJob, Clients, Sums, gathered
from undrift.experiment.experiment import Experiment
from undrift.federation.jobs import ClientQueue, SurveyJob
from undrift.federation.sampling import Explicit
from undrift.runs.entries import Row
from undrift.runs.folder import trial_name
from undrift.runs.layout import RunFile, model_file
from undrift.runs.rows import as_written, read_rows
from undrift.runs.trial import Trial
from undrift.training.task import Task
from undrift.training.trainer import ClientResult, Trainer

NOT_FINITE = "is not finite"

Absences = Mapping[tuple[int, str], Mapping[int, str]]
"""Round and kind of exchange → client → why it is absent."""


@dataclass(frozen=True)
class Scripted(Sequential):
    """Clients that are absent in a script do not run, and keep their places in sums."""

    absences: Absences = field(default_factory=dict)

    def gather(
        self, job: ClientJob, task: Task, clients: Clients, into: Sums
    ) -> Iterator[ClientResult]:
        assert isinstance(clients, ClientQueue)
        kind = "survey" if isinstance(job, SurveyJob) else "train"
        trainer = Trainer(task)

        def results() -> Iterator[ClientResult]:
            for work, me in clients:
                why = self.absences.get((work.t, kind), {}).get(work.client, "")
                if why and not why.endswith(NOT_FINITE):
                    yield ClientResult.missing(why)
                else:
                    result = job(trainer, (work, me))
                    yield replace(result, bad=why) if why else result

        return gathered(results(), clients, into)


ELSEWHERE = ("label", "seconds", "label_similarity")
"""what rows of a deployment have otherwise: names, times, and labels that nobody tells"""


def differences(
    experiment: Experiment,
    run: Path,
    data: Callable[[FederatedData], FederatedData] = lambda data: data,
) -> Iterator[str]:
    """Where the results of a finished deployment differ from a simulation with the same deliveries.

    data  from the experiment's federated data to those of the nodes
    """
    trials = {(repr(made), seed) for made in experiment.algorithms for seed in experiment.seeds}
    content = (run / RunFile.METRICS).read_bytes()
    rows = [row for _, row in read_rows(content, trials) if row]
    for seed in experiment.seeds:
        task, federated = experiment.prepare(seed)
        for made in experiment.algorithms:
            engine = Scripted(absences=_absences(run, made, seed))
            asked = _cohorts(run, made, seed, experiment.rounds)
            played = replace(experiment, sampler=Explicit(asked))
            trial = Trial(played, made, seed, task, data(federated), engine)
            state = trial.start()
            here = [as_written(row) for _, row in trial.follow(state) if row]
            there = [r for r in rows if (r["algorithm"], r["seed"]) == (repr(made), seed)]
            yield from _differing(f"{made!r}, seed {seed}", here, there)
            name = trial_name(run, experiment, made, seed)
            x = state.server.x if made.deploys == "cloud" else state.server.xbar
            for part, mine in (task.parameters(x) | task.unpack(state.buffers)).items():
                if not torch.equal(mine, load_file(model_file(run, name))[part]):
                    yield f"{made!r}, seed {seed}: the final model differs in {part}"


def _differing(trial: str, here: list[Row], there: list[Row]) -> Iterator[str]:
    if [row["round"] for row in here] != [row["round"] for row in there]:
        yield f"{trial}: {len(there)} rows, and {len(here)} in the simulation"
        return
    for mine, other in zip(here, there, strict=True):
        for key in mine.keys() - ELSEWHERE:
            if mine[key] != other.get(key):
                yield f"{trial}, round {mine['round']}: {key} is {other.get(key)}, not {mine[key]}"


def _exchanges(run: Path, made: Algorithm, seed: int) -> dict[tuple[int, str], dict[str, Any]]:
    """Round and kind of exchange → what happened; of a round played again, the last time."""
    lines = (run / RunFile.EXCHANGES).read_text(encoding="utf-8").splitlines()
    found = (json.loads(line) for line in lines)
    return {
        (one["round"], one["kind"]): one
        for one in found
        if (one["algorithm"], one["seed"]) == (repr(made), seed)
    }


def _absences(run: Path, made: Algorithm, seed: int) -> Absences:
    return {
        key: {int(client): why for client, why in one["absent"].items()}
        for key, one in _exchanges(run, made, seed).items()
    }


def _cohorts(run: Path, made: Algorithm, seed: int, rounds: int) -> tuple[tuple[int, ...], ...]:
    first, found = "survey" if made.surveys else "train", _exchanges(run, made, seed)
    return tuple(
        tuple(found[t, first]["asked"]) if (t, first) in found else () for t in range(1, rounds + 1)
    )
