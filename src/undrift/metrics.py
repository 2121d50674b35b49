"""Metrics: what is measured of a round."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core import Algorithm
from undrift.cost import RoundCost
from undrift.data.federated import FederatedData, Transform
from undrift.engines import Engine
from undrift.local import Trainer
from undrift.rounds import Round
from undrift.stats import cosine
from undrift.task import CHUNK, Task

PART = 4 * CHUNK
"""Samples that a worker evaluates at once."""


@dataclass(frozen=True)
class Scoring:
    """The evaluation of a part of the samples."""

    x: Tensor
    buffers: Tensor
    inputs: Tensor
    targets: Tensor
    transform: Transform | None

    def __call__(self, trainer: Trainer, part: slice) -> tuple[float, int, int]:
        some = (self.inputs[part], self.targets[part], self.transform)
        return trainer.task.score(self.x, self.buffers, *some)


@dataclass
class Meter:
    """Follows the rounds of one run: totals in every round, a row of metrics when asked."""

    algorithm: Algorithm
    task: Task
    data: FederatedData
    cost: RoundCost
    engine: Engine
    dropped: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    h_cosine: float = math.nan
    _h: Tensor | None = field(default=None, repr=False)

    def count(self, round: Round) -> None:
        """Add a round to the totals; call it for every round."""
        self.dropped += len(round.dropped)
        self.bytes_down += round.bytes_down
        self.bytes_up += round.bytes_up
        self.seconds += round.seconds
        trained = sum(int(self.data.sizes[i]) for i in round.delivered)
        self.flops += self.cost.flops(round.steps, round.samples, trained, len(round.delivered))
        if self._h is not None and round.mean is not None:
            self.h_cosine = cosine(self._h, round.mean.raw)
        self._h = round.server.h if "h" in round.server else None

    def row(self, round: Round) -> dict[str, Any]:
        """All metrics after a round. NaN stands for what an algorithm does not have."""
        server = round.server
        factor = float(server.fedglad.factor.mean()) if "fedglad" in server else math.nan
        row = {
            "round": round.t,
            "train_loss": round.train_loss,
            "x_norm": float(server.x.norm()),
            "h_norm": float(server.h.norm()) if "h" in server else math.nan,
            "h_cosine": self.h_cosine,
            "drift": round.drift,
            "gsi": round.gsi,
            "factor": factor,
            "label_similarity": self.label_similarity(round.cohort),
            "delivered": len(round.delivered),
            "dropped": self.dropped,
            "bytes_down": self.bytes_down,
            "bytes_up": self.bytes_up,
            "flops": self.flops,
            "seconds": self.seconds,
        }
        models = {"cloud": server.x, "aggregate": server.xbar}
        if round.state.everyone is not None:
            models["all"] = round.state.everyone.to(server.x)
        tested: list[tuple[Tensor, float, float]] = []
        for name, x in models.items():
            known = [result for result in tested if torch.equal(result[0], x)]
            if not known:  # cloud and aggregate are one model in many algorithms
                known = [(x, *self.evaluate(x, round.buffers, *self.data.test))]
                tested += known
            _, loss, accuracy = known[0]
            row |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        chosen = self.algorithm.deploys
        if len(self.data.held_out):
            held = self.evaluate(models[chosen], round.buffers, *self.data.validation)
            row |= {"validation_loss": held[0], "validation_accuracy": held[1]}
        return row | {k: row[f"{chosen}_{k}"] for k in ("loss", "accuracy")}

    def evaluate(
        self,
        x: Tensor,
        buffers: Tensor,
        inputs: Tensor,
        targets: Tensor,
        transform: Transform | None,
    ) -> tuple[float, float]:
        """Mean loss and share of right answers, worked out by all workers."""
        scoring = Scoring(x, buffers, inputs, targets, transform)
        parts = (slice(start, start + PART) for start in range(0, len(targets), PART))
        scores = list(self.engine.map(scoring, self.task, parts))
        loss, right, total = (sum(column) for column in zip((0.0, 0, 0), *scores, strict=True))
        return self.task.rates(loss, int(right), int(total))

    def label_similarity(self, cohort: tuple[int, ...]) -> float:
        """Cosine of the cohort's label distribution and everybody's (FedGLAD, Eq. 16 to 18)."""
        if not self.task.classifies or not cohort:
            return math.nan
        counts = self.data.label_counts
        drawn, all_labels = counts[list(cohort)].sum(0), counts.sum(0)
        lengths = np.linalg.norm(drawn) * np.linalg.norm(all_labels)
        return float(drawn @ all_labels / lengths) if lengths else math.nan
