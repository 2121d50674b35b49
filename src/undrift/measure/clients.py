"""Results of single clients: models on the clients' own samples, and clients' own models."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from undrift.core import Algorithm, Struct
from undrift.data.federated import FederatedData
from undrift.engines import Engine
from undrift.federation.server import State, fresh_memory
from undrift.rng import stream
from undrift.training.sums import Sums
from undrift.training.task import Task
from undrift.training.trainer import Trainer, Work, client_rounds
from undrift.training.work import Local

MOST = 100
"""Clients, at most, of which each costs training or a pass over the common test samples."""

DECILES = np.linspace(0, 1, 11)


@dataclass(frozen=True)
class OwnScore:
    """The score of a model on a client's own samples, after local steps of SGD if there are any."""

    data: FederatedData
    t: int
    seed: int
    local: Local | None = None

    def __call__(self, trainer: Trainer, item: tuple[int, Tensor, Tensor]) -> Sums:
        client, x, buffers = item
        rows = self.data.own_rows(client)
        if not len(rows):
            return Sums()
        if self.local and len(self.data.rows(client)):
            work = Work(self.t, client, self.seed, self.data, self.local, len(rows))
            got = client_rounds(Algorithm(), trainer, [(work, Struct())], Struct(x=x), buffers)[0]
            x, buffers = x - got.up.delta, got.buffers
        return trainer.task.score(x, buffers, *self.data.take(rows), self.data.transform)


@dataclass(frozen=True)
class ClientMeter:
    """Measures clients one by one: each on its own test samples, or on all its samples.

    personal  local work before the second measurement; None if there is none
    """

    algorithm: Algorithm
    task: Task
    data: FederatedData
    engine: Engine
    seed: int = 0
    personal: Local | None = None

    @cached_property
    def some(self) -> list[int]:
        """All clients, or MOST of them: the same for all algorithms, in all rounds."""
        count = len(self.data)
        if count <= MOST:
            return list(range(count))
        drawn = stream(self.seed, "measured clients").choice(count, MOST, replace=False)
        return sorted(drawn.tolist())

    def models(self, state: State, clients: Iterable[int]) -> Iterable[tuple[int, Tensor, Tensor]]:
        """Clients with parameters and buffers: of the deployed model, or of their own."""
        if self.algorithm.regime == "local":
            fresh = fresh_memory(self.algorithm, state)
            for i in clients:
                me = state.clients.get(i, fresh)
                yield i, me.y, me.buffers if "buffers" in me else state.buffers
        else:
            cloud = self.algorithm.deploys == "cloud"
            x = state.server.x if cloud else state.server.xbar
            yield from ((i, x, state.buffers) for i in clients)

    def row(self, state: State) -> dict[str, Any]:
        """How the results of all clients are spread."""
        loss, accuracy = self._rates(state, range(len(self.data)))
        if not self.task.predicts:
            return spread("client_loss", loss, least_is_worst=False)
        known = accuracy[~np.isnan(accuracy)]
        deciles = np.quantile(known, DECILES).tolist() if len(known) else []
        return {"client_accuracy": deciles} | spread("client_accuracy", accuracy)

    def personal_row(self, state: State) -> dict[str, Any]:
        """How those of `some` are spread after local steps."""
        loss, accuracy = self._rates(state, self.some, self.personal)
        if not self.task.predicts:
            return spread("personal_loss", loss, least_is_worst=False)
        return spread("personal_accuracy", accuracy)

    def table(self, state: State) -> list[dict[str, Any]]:
        """The results of every client, in rows; None where it has none."""
        everyone = range(len(self.data))
        names = self.data.client_names
        columns: dict[str, Any] = {
            "client": everyone,
            "name": names if names is not None else [None for _ in everyone],
            "samples": self.data.sizes.tolist(),
            "measured_on": [len(self.data.own_rows(i)) for i in everyone],
        }
        columns["loss"], columns["accuracy"] = self._rates(state, everyone)
        if self.personal:
            both = np.full((2, len(self.data)), math.nan)
            both[:, self.some] = self._rates(state, self.some, self.personal)
            columns["personal_loss"], columns["personal_accuracy"] = both
        return [
            {
                name: None if value != value else value
                for name, value in zip(columns, row, strict=True)
            }
            for row in zip(*columns.values(), strict=True)
        ]

    def validation(self, state: State) -> list[dict[str, Any]]:
        """The results on the samples of every validation client, in rows.

        Of clients that train alone, they are means over the models of `some`.
        """
        alone = self.algorithm.regime == "local"
        models = list(self.models(state, self.some if alone else [0]))
        rows = []
        for client, held in enumerate(self.data.held_out):
            inputs, targets = self.data.take(held)
            sums = [
                self.task.score(x, buffers, inputs, targets, self.data.transform)
                for _, x, buffers in models
            ]
            row: dict[str, Any] = {"client": client, "samples": len(held)}
            row["answers"] = sums[0].total.total()
            if self.task.predicts:
                row["right"] = sum(one.right.total() for one in sums) / len(sums)
            rows.append(row | {"loss": sum(one.loss for one in sums) / len(sums)})
        return rows

    def _rates(
        self, state: State, clients: Iterable[int], local: Local | None = None
    ) -> np.ndarray:
        """Loss and accuracy of each client, shape (2, clients); NaN if it has no samples."""
        job = OwnScore(self.data, state.t, self.seed, local)
        scores = self.engine.map(job, self.task, self.models(state, clients))
        return np.array([self.task.rates(sums)[:2] for sums in scores]).T


def spread(name: str, values: np.ndarray, *, least_is_worst: bool = True) -> dict[str, float]:
    """Mean, mean of the worst tenth, and standard deviation over clients; NaN are left out."""
    ordered = np.sort(values[~np.isnan(values)])
    if not len(ordered):
        return {f"{name}_{what}": math.nan for what in ("mean", "worst", "sd")}
    tenth = math.ceil(len(ordered) / 10)
    worst = ordered[:tenth] if least_is_worst else ordered[-tenth:]
    return {
        f"{name}_mean": float(ordered.mean()),
        f"{name}_worst": float(worst.mean()),
        f"{name}_sd": float(ordered.std()),
    }
