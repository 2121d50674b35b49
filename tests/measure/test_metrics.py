"""Metrics: the spread of accuracy over clients, for classes and for sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from undrift import SCAFFOLD, AdaBest, FedAvg, FedGLAD, Local, Task, Uniform, rounds
from undrift.core import Algorithm
from undrift.data.federated import FederatedData
from undrift.engines import Engine, Sequential, Threads
from undrift.federation.rounds import Round
from undrift.measure.cost import RoundCost
from undrift.measure.metrics import PART, Meter
from undrift.training.task import PADDING
from undrift.vectors import cosine


class Tokens(torch.nn.Module):
    """Scores of the next token at every place."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.table(x).transpose(1, 2)
        return scores


def federation(kind: str) -> tuple[Task, FederatedData]:
    rng = np.random.default_rng(0)
    sizes = [3, 1, 0, PART + 7, 20]  # nobody, a few, and more than one part
    parts = np.split(rng.permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    torch.manual_seed(0)
    if kind == "classes":
        x, y = torch.randn(sum(sizes), 4), torch.randint(3, (sum(sizes),))
        return Task(torch.nn.Linear(4, 3)), FederatedData.split((x, y), (x[:9], y[:9]), parts)
    x = torch.randint(5, (sum(sizes), 6))
    y = torch.randint(5, (sum(sizes), 6))
    y[torch.rand(y.shape) < 0.3] = PADDING
    y[parts[1]] = PADDING  # a client with samples but nothing to answer
    return Task(Tokens(), "next_token"), FederatedData.split((x, y), (x[:9], y[:9]), parts)


def played(task: Task, data: FederatedData, **options: Any) -> Round:
    local = Local(lr=0.3, steps=3, batch_size=4)
    *_, last = rounds(FedAvg(), task, data, total=3, sampler=Uniform(4), local=local, **options)
    return last


@pytest.mark.parametrize("kind", ["classes", "tokens"])
@pytest.mark.parametrize("engine", [Sequential(), Threads(2)])
def test_the_spread_of_accuracy_is_that_of_the_clients_one_by_one(
    kind: str, engine: Engine
) -> None:
    task, data = federation(kind)
    last = played(task, data)
    cost = RoundCost.of(FedAvg(), task, data.example)
    row = Meter(FedAvg(), task, data, cost, engine, fairness=True).row(last)
    alone = []
    for i in range(len(data)):
        inputs, targets = data.client(i)
        if (targets != PADDING).any():
            alone.append(task.evaluate(last.server.x, last.buffers, inputs, targets)[1])
    assert len(alone) == (4 if kind == "classes" else 3)
    assert row["client_accuracy"] == pytest.approx(np.quantile(alone, np.linspace(0, 1, 11)))
    assert row["client_accuracy_worst"] == pytest.approx(min(alone))
    assert row["client_accuracy_sd"] == pytest.approx(np.std(alone))


@pytest.mark.parametrize("engine", [Sequential(), Threads(2)])
def test_balanced_accuracy_is_measured_wherever_accuracy_is(engine: Engine) -> None:
    task, data = federation("classes")
    held = np.flatnonzero((data.targets != 1).numpy())[: PART + 50]  # one class is missing
    data = replace(data, held_out=(held,), test_inputs=data.inputs, test_targets=data.targets)
    last = played(task, data)
    row = Meter(FedAvg(), task, data, RoundCost.of(FedAvg(), task, data.example), engine).row(last)
    for name, (inputs, targets, _) in {"": data.test, "validation_": data.validation}.items():
        kinds = targets.unique()
        x = (last.server.x, last.buffers)
        each = [task.evaluate(*x, inputs[targets == k], targets[targets == k])[1] for k in kinds]
        assert len(each) == (2 if name else 3)
        assert row[f"{name}balanced_accuracy"] == pytest.approx(np.mean(each))
    assert row["balanced_accuracy"] == row["cloud_balanced_accuracy"] != row["accuracy"]
    text = federation("tokens")
    row = Meter(FedAvg(), *text, RoundCost.of(FedAvg(), text[0], text[1].example), engine).row(
        played(*text)
    )
    assert np.isnan(row["balanced_accuracy"])


def test_rows_tell_who_has_delivered_and_each_group_of_parameters() -> None:
    task, data = federation("classes")
    made = FedGLAD(FedAvg())
    meter = Meter(made, task, data, RoundCost.of(made, task, data.example), Sequential())
    seen: set[int] = set()
    for round in rounds(made, task, data, total=4, sampler=Uniform(2), local=Local(steps=2)):
        seen |= set(round.delivered)
        row = meter.row(round)
        assert row["coverage"] == len(seen) / 5
        assert len(row["group_gsi"]) == len(row["group_factor"]) == 2
        assert np.mean(row["group_factor"]) == pytest.approx(row["factor"])
        assert "client_accuracy" not in row


def test_the_usual_diversity_is_fedglads_mean_of_the_rounds_before() -> None:
    task, data = federation("classes")
    made = FedGLAD(FedAvg(), beta=0.7, groups="universal")
    meter = Meter(made, task, data, RoundCost.of(made, task, data.example), Sequential())
    usual = None
    for round in rounds(made, task, data, total=4, sampler=Uniform(3), local=Local(steps=2)):
        meter.count(round)
        row = meter.row(round)
        usual = usual or row["gsi"]
        assert row["gsi_mean"] == pytest.approx(usual)
        usual = 0.7 * usual + 0.3 * row["gsi"]


@pytest.mark.parametrize(
    ("made", "field"),
    [(AdaBest(), "h"), (SCAFFOLD(), "c"), (FedGLAD(SCAFFOLD()), "c"), (FedAvg(), None)],
    ids=str,
)
def test_the_correction_is_what_the_algorithm_says(made: Algorithm, field: str | None) -> None:
    task, data = federation("classes")
    meter = Meter(made, task, data, RoundCost.of(made, task, data.example), Sequential())
    before = 0.0
    for round in rounds(made, task, data, total=3, sampler=Uniform(3), local=Local(steps=2)):
        meter.count(round)
        row = meter.row(round)
        if field is None:
            assert np.isnan([row["h_norm"], row["h_cosine"]]).all()
            continue
        assert round.mean is not None
        now = getattr(round.server, field)
        assert row["h_norm"] == pytest.approx(float(now.norm()))
        if round.t > 1:
            assert row["h_cosine"] == pytest.approx(cosine(before, round.mean.raw))
        before = now
