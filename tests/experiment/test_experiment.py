"""Experiments: validation clients, and every kind of target from the data set to the row."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from undrift.algorithms import AdaBest
from undrift.config import UndriftError
from undrift.data.partition.partitions import IID, Dirichlet, federate
from undrift.data.source import Source
from undrift.data.sources import Digits
from undrift.data.text.words import NO_TARGET
from undrift.experiment.advice import advice
from undrift.experiment.experiment import Experiment
from undrift.experiment.registry import algorithm
from undrift.federation.sampling import Uniform
from undrift.models import MLP, Linear, Model, StackOverflowLSTM
from undrift.runs.folder import RunFolder
from undrift.runs.identity import stored_experiment
from undrift.runs.runner import run
from undrift.runs.trial import Trial
from undrift.training.work import Local


def experiment(**options: Any) -> Experiment:
    settings: dict[str, Any] = {
        "algorithms": (algorithm("fedavg"), algorithm("adabest")),
        "data": Digits(),
        "partition": Dirichlet(clients=22, alpha=0.5),
        "model": Linear(),
        "local": Local(lr=0.1, batch_size=16),
        "sampler": Uniform(5),
        "rounds": 6,
        "every": 3,
    }
    return Experiment(**settings | options)


def test_texts_and_objects_name_the_same_experiment() -> None:
    made = Experiment(
        algorithms=(algorithm("FedGLAD(ServerOpt(FedProx(mu=0.1), Adam(lr=0.01)))"), AdaBest()),
        data=Digits(),
        partition=Dirichlet(clients=22, alpha=0.5),
        model=Linear(),
        local=Local(lr=0.05, epochs=5, batching="wrap"),
        sampler=Uniform(5),
        seeds=(0, 3),
    )
    named = Experiment(**made.resolved())
    assert named == made
    assert named.hash == made.hash
    assert experiment(local={"lr": 0.1, "batch_size": 16}) == experiment()


@pytest.mark.parametrize("name", [f.name for f in fields(Experiment) if f.name != "target"])
def test_every_setting_that_changes_rows_is_part_of_the_identity(name: str) -> None:
    others: dict[str, Any] = {
        "algorithms": ["fedavg"],
        "data": "synthetic",
        "partition": IID(clients=22),
        "model": MLP(),
        "local": Local(lr=0.1),
        "sampler": Uniform(6),
        "seeds": [1],
        "dropout": 0.5,
        "loss": "mse",
        "client_test": 0.2,
        "stop": ["Target(0.9)"],
        "origin": "Origin('0123456789ab', 'FedAvg()', 3)",
    }
    one = experiment()
    value = getattr(one, name)
    other = others[name] if name in others else not value if type(value) is bool else value + 1
    assert replace(one, **{name: other}).hash != one.hash
    assert replace(one, **{name: value}).hash == one.hash


def test_what_is_only_reported_is_no_part_of_the_identity() -> None:
    assert experiment(target=0.5).hash == experiment().hash


def rows(made: Experiment) -> list[dict[str, Any]]:
    prepared = made.prepare(0)
    return [row for one in made.algorithms for row in Trial(made, one, 0, *prepared).rows()]


def test_an_algorithm_that_diverges_leaves_the_others_alone(tmp_path: Path) -> None:
    made = experiment(algorithms=["IDA(fedavg)", "fedavg"], local=Local(lr=1e20, steps=1))
    ends = [event for event in run(made, tmp_path, engine="sequential") if event.kind == "end"]
    assert [event.note for event in ends] == ["the server's xbar is not finite", None]
    assert [event.round for event in ends] == [1, 6]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("ResNet56()", "images must have the shape"),
        ("BiLSTM()", "give words="),
        ("FedGBOGRU()", "texts"),
    ],
)
def test_a_model_that_does_not_fit_is_named_with_the_data(model: str, says: str) -> None:
    with pytest.raises(UndriftError, match=says) as caught:
        experiment(model=model).check()
    name = model.removesuffix("()")
    assert str(caught.value).startswith(f"{name}(")
    assert str(caught.value).count(f"{name}(") == 1
    assert "cannot train on Digits()" in str(caught.value)


def test_a_cohort_too_small_for_an_algorithm_is_refused_before_anything_runs() -> None:
    made = experiment(algorithms=["fedavg", "Krum(fedavg, f=2)"])
    with pytest.raises(UndriftError, match="needs 7 clients in a round, and Uniform"):
        made.check()


def test_validation_clients_do_not_train() -> None:
    partition = Dirichlet(clients=22, alpha=0.5)
    whole = federate(Digits(), partition, seed=0)
    split = federate(Digits(), partition, seed=0, validation=2)
    assert len(split) == 20
    assert [len(one) for one in split.held_out] == [65, 65]
    held = np.concatenate(split.held_out)
    assert not set(held) & set(split.order)
    assert {*held, *split.order} == set(whole.order)
    _, targets, _ = split.validation
    assert torch.equal(targets, whole.targets[torch.from_numpy(held)])
    again = federate(Digits(), partition, seed=0, validation=2)
    assert np.array_equal(held, np.concatenate(again.held_out))


def test_validation_is_part_of_every_row() -> None:
    found = rows(experiment(validation=2))
    assert len(found) == 4
    assert all(0 <= row["validation_accuracy"] <= 1 for row in found)
    assert all(row["validation_loss"] > 0 for row in found)
    assert found[1]["validation_accuracy"] != found[1]["accuracy"]
    assert "validation_loss" not in rows(experiment())[0]
    assert experiment(validation=2).hash != experiment().hash


def test_validation_leaves_somebody_to_train() -> None:
    with pytest.raises(UndriftError, match="22 clients"):
        experiment(validation=22)
    with pytest.raises(UndriftError, match="22 clients"):
        federate(Digits(), Dirichlet(clients=22, alpha=0.5), seed=0, validation=22)
    with pytest.raises(UndriftError, match="validation must be a whole number >= 0"):
        experiment(validation=-1)
    with pytest.raises(UndriftError, match="use at most 20 clients"):
        experiment(validation=2, sampler=Uniform(21))
    natural = experiment(data="synthetic", partition="Natural()", sampler=Uniform(31))
    with pytest.raises(UndriftError, match="use at most 30 clients"):  # known with the data only
        natural.check()


@pytest.mark.parametrize("model", ["mlp", "MLP(hidden=(100, 100))", MLP()])
def test_models_by_name_and_by_value_are_the_same(model: str | Model) -> None:
    made = experiment(model=model)
    assert made.model == MLP()
    assert made.hash == experiment(model=MLP()).hash
    with pytest.raises(UndriftError, match="did you mean 'MLP'"):
        experiment(model="mpl")


def regression() -> Source:
    x = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    y = x @ torch.tensor([1.0, 2.0, 3.0])
    return Source(x[:90], y[:90], x[90:], y[90:], classes=1)


def counting() -> Source:
    x = (torch.arange(60)[:, None] + torch.arange(5)) % 7
    y = ((x + 1) % 7).to(torch.int16)
    y[:, -1] = NO_TARGET
    return Source(x[:40], y[:40], x[40:], y[40:], classes=7)


@pytest.mark.parametrize(
    ("source", "model"), [(regression(), Linear()), (counting(), StackOverflowLSTM(hidden=9))]
)
def test_regression_and_next_token(source: Source, model: Model, tmp_path: Path) -> None:
    made = experiment(data=source, model=model, partition=IID(clients=10), validation=1)
    found = rows(made)
    assert found[1]["loss"] < found[0]["loss"]
    assert math.isnan(found[0]["accuracy"]) == (model == Linear())
    assert math.isnan(found[0]["label_similarity"])
    assert found[0]["flops"] > 0
    with RunFolder(tmp_path, made, *made.prepare(made.seeds[0])):
        pass
    assert json.loads((tmp_path / "partition.json").read_text()) == {}


def test_models_get_batches_and_not_what_is_stored() -> None:
    class Pixels:
        def __call__(self, x: torch.Tensor, rng: Any) -> torch.Tensor:
            return x[:, None].float() / 255

    x = torch.randint(256, (80, 12, 12), dtype=torch.uint8)
    y = torch.arange(80) % 4
    source = Source(x[:60], y[:60], x[60:], y[60:], classes=4, transform=Pixels())
    made = experiment(data=source, model="fedgbo_cnn", partition=IID(clients=10), validation=1)
    assert all(math.isfinite(row["validation_loss"]) for row in rows(made))
    _, data = made.prepare(0)
    assert data.example.shape == (1, 1, 12, 12)
    assert data.to("cpu").transform is data.transform


def test_a_model_that_does_not_fit_the_data_is_refused_before_anything_runs() -> None:
    experiment = Experiment(
        algorithms=["fedavg"],
        data="digits",
        partition="IID(clients=5)",
        model="FedGBOGRU()",
        local=Local(),
        sampler="Uniform(2)",
    )
    with pytest.raises(UndriftError, match="FedGBOGRU"):
        experiment.check()


def test_samples_in_memory_tell_themselves_apart(tmp_path: Path) -> None:
    one = regression()
    other = replace(one, inputs=one.inputs + 1)
    owned = replace(one, client_ids=np.array(["a", "b"] * 45))
    hashes = {experiment(data=data, model=Linear()).hash for data in (one, other, owned)}
    assert len(hashes) == 3
    assert experiment(data=regression(), model=Linear()).hash in hashes
    made = experiment(data=one, model=Linear(), partition=IID(clients=10), algorithms=["fedavg"])
    for _ in range(2):  # the second time there is nothing left to do
        kinds = [event.kind for event in run(made, tmp_path)]
    assert kinds == ["note"]
    with pytest.raises(UndriftError, match="from Python"):
        stored_experiment(tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_size": 66}, "at most 65 samples, so 'bootstrap' fills every batch of 66 up"),
        ({"batch_size": 66, "batching": "wrap"}, "so 'wrap' fills every batch"),
        ({"batch_size": 65}, None),
        ({"batch_size": 10_000, "batching": "keep"}, None),
    ],
)
def test_copies_in_batches_are_told(options: dict[str, Any], says: str | None) -> None:
    made = experiment(algorithms=["fedavg"], local=Local(**options))
    _, data = made.check()
    hints = list(advice(made, data))
    assert hints == [] if says is None else says in hints[0]


@pytest.mark.parametrize(
    ("name", "clients", "told"),
    [
        ("adabest(beta=0.91)", 5, True),
        ("adabest(beta=0.9)", 5, False),
        ("fedglad+adabest", 5, True),
        ("adabest(beta='auto')", 5, False),
        ("fedglad(extrapolate(fedavg, beta=0.6))", 1, True),
        ("adabest(beta=1.0)", 22, False),
        ("fedavg", 1, False),
    ],
)
def test_a_beta_that_may_grow_is_told(name: str, clients: int, told: bool) -> None:
    made = experiment(algorithms=[name], sampler=Uniform(clients))
    _, data = made.check()
    hints = " ".join(advice(made, data))
    assert ("may let the model grow" in hints) == told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("FedGLAD(LocalOpt(SCAFFOLD(), Adam()))", True),
        ("LocalOpt(Momentum(FedAvg()), RMSProp())", True),
        ("LocalOpt(SCAFFOLD(), HeavyBall())", False),
        ("LocalOpt(SCAFFOLD(option=1), Adam())", False),
        ("LocalOpt(FedAvg(), Adam())", False),
    ],
)
def test_updates_of_an_adaptive_optimiser_are_no_gradients(name: str, told: bool) -> None:
    made = experiment(algorithms=[name])
    _, data = made.check()
    assert ("takes updates divided by" in " ".join(advice(made, data))) == told
