"""Trial: one algorithm of an experiment on one seed, with its metrics."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from undrift.arithmetic import steadily
from undrift.core import Algorithm, Struct
from undrift.data.federated import FederatedData
from undrift.engines import Engine, usual_engine
from undrift.experiment.experiment import Experiment
from undrift.federation.aggregate import first_bad
from undrift.federation.rounds import Round, State, rounds, start
from undrift.measure.cost import RoundCost
from undrift.measure.metrics import Meter
from undrift.measure.stopping import first_to_stop
from undrift.runs.entries import Row
from undrift.runs.rows import as_written
from undrift.training.task import Task


class Trial:
    """One algorithm of an experiment on one seed; with the fastest engine if none is given.

    A trial that diverges ends early, with a `failure`; its last row is that of the same round.
    One that a stop rule ends is finished early: the rule is `stopped`, and in its last row, too.
    """

    def __init__(
        self,
        experiment: Experiment,
        algorithm: Algorithm,
        seed: int,
        task: Task,
        data: FederatedData,
        engine: Engine | None = None,
    ) -> None:
        self.experiment, self.algorithm, self.seed = experiment, algorithm, seed
        self.task, self.data, self.engine = task, data, engine or usual_engine()
        cost = RoundCost.of(algorithm, task, data.example)
        self.meter = Meter(
            algorithm,
            task,
            data,
            cost,
            self.engine,
            experiment.fairness,
            seed,
            experiment.personal_work,
        )
        self.failure: str | None = None
        self.stopped: str | None = None

    def start(self, folder: Path | None = None) -> State:
        """The state before round 1; checkpoints need a `folder` for the client records."""
        keep = self.experiment.all_clients and self.algorithm.regime == "federated"
        sampler = self.experiment.sampler
        made, task, data = self.algorithm, self.task, self.data
        return start(made, task, data, sampler, keep_models=keep, folder=folder)

    @steadily
    def follow(
        self, state: State, seconds: float = 0.0, before: Sequence[Row] = ()
    ) -> Generator[tuple[Round, Row | None], None, None]:
        """Run from a state to the end, yielding each round with its row of metrics, if one is due.

        seconds  training time before that state
        before   rows before that state, which stop rules judge
        """
        if state.notes:
            self.meter.resume(state, seconds)
        rows = list(before)
        self.stopped = rows[-1].get("stopped") if rows else None
        if self.stopped:
            return
        experiment = self.experiment
        compares = experiment.all_updates and self.algorithm.regime == "federated"
        for round in rounds(
            self.algorithm,
            self.task,
            self.data,
            total=experiment.rounds,
            sampler=experiment.sampler,
            local=experiment.local,
            seed=self.seed,
            engine=self.engine,
            available=self.data.available,
            dropout=experiment.dropout,
            state=state,
            compare=experiment.evaluates if compares else None,
        ):
            self.meter.count(round)
            self.failure = _failure(round)
            if experiment.evaluates(round.t) or self.failure:
                here = {"algorithm": repr(self.algorithm), "seed": self.seed}
                row = here | self.meter.row(round)
                yield round, row | self._judged(rows, row)
            else:
                yield round, None
            if self.failure or self.stopped:
                return

    def _judged(self, rows: list[Row], row: Row) -> Row:
        """What stop rules add to a row after others."""
        if self.failure or not self.experiment.stop:
            return {}
        rows.append(as_written(row))  # as a resumed trial reads it
        rule = first_to_stop(self.experiment.stop, rows)
        self.stopped = repr(rule) if rule else None
        return {"stopped": self.stopped} if rule else {}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Run from round 1 to the end, yielding metrics at each evaluation.

        If the model or the whole cohort diverges, the last row says why, in "failure".
        """
        for _, row in self.follow(self.start()):
            if row:
                yield row | {"failure": self.failure} if self.failure else row


def _failure(round: Round) -> str | None:
    """Why a trial has to end early: the first value that is not finite; None if it can continue."""
    if not bool(torch.isfinite(round.server.x).all()):
        others = {name: value for name, value in round.server.items() if name != "x"}
        # The others first: x is computed from them, so they are nearer to the cause.
        bad = first_bad(Struct(**others), Struct(x=round.server.x))
        return f"the server's {bad} is not finite"
    reasons = {reason for reason in round.dropped.values() if "diverged" in reason}
    return f"all clients {min(reasons)}" if reasons and not round.delivered else None
