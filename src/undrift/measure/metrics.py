"""The metrics of a round."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.core import Algorithm
from undrift.data.federated import FederatedData, SampleSet
from undrift.engines import Engine
from undrift.federation.rounds import Round, State
from undrift.measure.clients import DECILES, ClientMeter
from undrift.measure.cost import RoundCost
from undrift.measure.quantities import CLOCK
from undrift.training.sums import Rates, Sums
from undrift.training.task import CHUNK, Task
from undrift.training.trainer import Trainer
from undrift.training.work import Local
from undrift.vectors import cosine

PART = 4 * CHUNK
"""samples per evaluation job"""

OF_CLIENTS = (
    *("drift", "gsi", "square", "square_spread"),
    *("label_similarity", "delivered", "coverage"),
)
"""what there is only where there are clients"""

NOT_ALONE = ("cloud", "aggregate")
"""models that there are only where clients do not train alone"""


@dataclass(frozen=True)
class Scoring:
    """Job: loss and predictions on a slice of the samples, summed."""

    x: Tensor
    buffers: Tensor
    data: FederatedData
    samples: SampleSet

    def __call__(self, trainer: Trainer, part: slice) -> Sums:
        some = self.data.part_of(self.samples, part)
        return trainer.task.score(self.x, self.buffers, *some)


@dataclass(frozen=True)
class Hits:
    """Job: right answers and all answers of each sample in a slice of the clients' samples."""

    x: Tensor
    buffers: Tensor
    data: FederatedData

    def __call__(self, trainer: Trainer, part: slice) -> np.ndarray:
        inputs, targets = self.data.take(self.data.order[part])
        some = (inputs, targets, self.data.transform)
        return trainer.task.hits(self.x, self.buffers, *some).cpu().numpy()


@dataclass
class Totals:
    """Totals since the start of the run."""

    dropped: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    flops: float = 0.0
    seconds: float = 0.0


@dataclass
class Meter:
    """Measures the rounds of one trial: totals in every round, a row of metrics on request.

    fairness  whether rows have the distribution of accuracy over clients; they do if clients have
              test samples of their own
    seed      of the trial
    personal  local work after which clients are measured once more; None: they are not
    """

    algorithm: Algorithm
    task: Task
    data: FederatedData
    cost: RoundCost
    engine: Engine
    fairness: bool = False
    seed: int = 0
    personal: Local | None = None
    totals: Totals = field(default_factory=Totals)
    h_cosine: float = math.nan
    gsi_mean: float = math.nan
    _h: Tensor | None = field(default=None, repr=False)
    _B: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        about = (self.algorithm, self.task, self.data, self.engine, self.seed, self.personal)
        self.clients = ClientMeter(*about)

    @property
    def of_clients(self) -> bool:
        """Whether single clients are measured."""
        return bool(self.personal or self.data.own_tests or self.fairness)

    def notes(self) -> dict[str, Any]:
        """What a checkpoint keeps for `resume`: everything but the time."""
        kept = {key: value for key, value in vars(self.totals).items() if key != CLOCK}
        return kept | {"h_cosine": self.h_cosine}

    def resume(self, state: State, seconds: float) -> None:
        """Continue from the state of a checkpoint, with what `notes` returned then."""
        kept = dict(state.notes)
        self.h_cosine = kept.pop("h_cosine")
        self.totals = Totals(**kept, seconds=seconds)
        self._h = self.algorithm.correction(state.server)
        self._B = state.server.fedglad.B if "fedglad" in state.server else None

    def count(self, round: Round) -> None:
        """Add a round to the totals; call it for every round."""
        totals = self.totals
        totals.dropped += len(round.dropped)
        totals.bytes_down += round.bytes_down
        totals.bytes_up += round.bytes_up
        totals.seconds += round.seconds
        trained = sum(int(self.data.sizes[i]) for i in round.delivered)
        totals.flops += self.cost.flops(round.steps, round.samples, trained, len(round.delivered))
        if self._h is not None and round.mean is not None:
            self.h_cosine = cosine(self._h, round.mean.raw)
        self._h = round.correction
        if "fedglad" in round.server:
            own = round.server.fedglad
            B = 0 * own.B if self._B is None else self._B
            self.gsi_mean = float(B.where(B > 0, own.gsi).mean())  # the first GSI starts B
            self._B = own.B

    def row(self, round: Round) -> dict[str, Any]:
        """All metrics after a round; NaN for those that an algorithm does not have."""
        server = round.server
        row: dict[str, Any] = {
            "round": round.t,
            "train_loss": round.train_loss,
            "x_norm": float(server.x.norm()),
            "h_norm": math.nan if round.correction is None else float(round.correction.norm()),
            "h_cosine": self.h_cosine,
            "drift": round.drift,
            "gsi": round.gsi,
            "gsi_mean": self.gsi_mean,
            "square": round.square,
            "square_spread": round.square_spread,
            "all_gsi": round.all_gsi,
            "all_square": round.all_square,
            "cohort_cosine": round.cohort_cosine,
            "factor": float(server.fedglad.factor.mean()) if "fedglad" in server else math.nan,
            "label_similarity": self.label_similarity(round.cohort),
            "delivered": len(round.delivered),
            "coverage": len(round.clients) / len(self.data),
            "dropped": self.totals.dropped,
            "bytes_down": self.totals.bytes_down,
            "bytes_up": self.totals.bytes_up,
            "flops": self.totals.flops,
            "seconds": self.totals.seconds,
        }
        if "fedglad" in server:
            own = server.fedglad
            row |= {"group_gsi": own.gsi.tolist(), "group_factor": own.factor.tolist()}
        own = server.extrapolate if "extrapolate" in server else server
        row |= {name: getattr(own, name) for name in ("beta", "updates") if name in own}
        regime = self.algorithm.regime
        if regime == "central":  # there are no clients
            row |= dict.fromkeys(OF_CLIENTS, math.nan)
        if regime == "local":
            return row | self._alone(round.state)
        models = {"cloud": server.x, "aggregate": server.xbar}
        if round.state.everyone is not None and regime == "federated":
            models["all"] = round.state.everyone.to(server.x)
        tested: list[tuple[Tensor, Rates]] = []
        for name, x in models.items():
            known = [result for result in tested if torch.equal(result[0], x)]
            if not known:  # in many algorithms, cloud and aggregate are the same model
                known = [(x, self.evaluate(x, round.buffers, "test"))]
                tested += known
            row |= _named(f"{name}_", known[0][1])
        chosen = self.algorithm.deploys
        if self.data.held_out:
            held = self.evaluate(models[chosen], round.buffers, "validation")
            row |= _named("validation_", held)
        if self.data.own_tests:
            row |= self.clients.row(round.state)
        elif self.fairness and self.task.predicts:
            row |= self.spread(models[chosen], round.buffers)
        if self.personal:
            row |= self.clients.personal_row(round.state)
        return row | {k: row[f"{chosen}_{k}"] for k in Rates._fields}

    def _alone(self, state: State) -> dict[str, Any]:
        """The results of clients that train alone: means over their models, of some if many."""
        row = {k: v for model in NOT_ALONE for k, v in _named(f"{model}_", Rates()).items()}
        sets: dict[str, SampleSet] = {"": "test"}
        if self.data.held_out:
            sets["validation_"] = "validation"
        for name, samples in sets.items():
            models = self.clients.models(state, self.clients.some)
            tested = [self.evaluate(x, buffers, samples) for _, x, buffers in models]
            row |= _named(name, Rates(*np.mean(tested, axis=0).tolist()))
        if self.fairness or self.data.own_tests:
            row |= self.clients.row(state)
        if self.personal:
            row |= self.clients.personal_row(state)
        return row

    def evaluate(self, x: Tensor, buffers: Tensor, samples: SampleSet) -> Rates:
        """Mean loss and accuracies, computed by all workers."""
        scoring = Scoring(x, buffers, self.data, samples)
        sums = self.engine.map(scoring, self.task, _parts(self.data.count_of(samples)))
        return self.task.rates(sum(sums, Sums()))

    def spread(self, x: Tensor, buffers: Tensor) -> dict[str, Any]:
        """Distribution over clients of a model's accuracy on the samples of each client."""
        hits = self.engine.map(Hits(x, buffers, self.data), self.task, _parts(len(self.data.order)))
        right, answers = np.concatenate(list(hits), axis=1)
        owners = np.repeat(np.arange(len(self.data)), self.data.sizes)
        all_right, all_answers = (np.bincount(owners, some) for some in (right, answers))
        asked = all_answers > 0
        accuracy = np.sort(all_right[asked] / all_answers[asked])
        return {
            "client_accuracy": np.quantile(accuracy, DECILES).tolist(),
            "client_accuracy_worst": float(accuracy[: math.ceil(len(accuracy) / 10)].mean()),
            "client_accuracy_sd": float(accuracy.std()),
        }

    def label_similarity(self, cohort: tuple[int, ...]) -> float:
        """Cosine of the label counts of the cohort and of all clients (FedGLAD, Eq. 16 to 18)."""
        if not self.task.classifies or not cohort:
            return math.nan
        counts = self.data.label_counts
        drawn, all_labels = counts[list(cohort)].sum(0), counts.sum(0)
        lengths = np.linalg.norm(drawn) * np.linalg.norm(all_labels)
        return float(drawn @ all_labels / lengths) if lengths else math.nan


def _named(prefix: str, rates: Rates) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in rates._asdict().items()}


def _parts(samples: int) -> list[slice]:
    return [slice(start, start + PART) for start in range(0, samples, PART)]
