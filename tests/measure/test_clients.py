"""Results of single clients: own test samples, own models, and after local steps."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from undrift.data.federated import FederatedData
from undrift.data.partition.split import with_fewer_tests, with_own_tests
from undrift.data.source import Source
from undrift.experiment.experiment import Experiment
from undrift.measure import clients as module
from undrift.measure.clients import spread
from undrift.runs.runner import run
from undrift.runs.trial import Trial

ALGORITHMS = ["fedavg", "centralised", "local-only", "adabest"]


def experiment(**options: Any) -> Experiment:
    settings: dict[str, Any] = {
        "algorithms": ALGORITHMS,
        "data": "digits",
        "partition": "Dirichlet(clients=12, alpha=0.3)",
        "model": "Linear()",
        "local": "Local(lr=0.1, steps=2, batch_size=8)",
        "sampler": "Uniform(clients=4)",
        "rounds": 3,
        "every": 2,
    }
    return Experiment(**settings | options)


def regression() -> Source:
    x = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    y = x @ torch.tensor([1.0, 2.0, 3.0])
    return Source(x[:90], y[:90], x[90:], y[90:], classes=1)


def last(made: Experiment, name: int) -> tuple[Trial, Any, dict[str, Any]]:
    """A trial of an algorithm, its last round and row."""
    trial = Trial(made, made.algorithms[name], 0, *made.prepare(0))
    *_, (round, row) = trial.follow(trial.start())
    return trial, round, row or {}


def split(sizes: list[int]) -> FederatedData:
    rng = np.random.default_rng(0)
    parts = np.split(rng.permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    x, y = torch.randn(sum(sizes), 4), torch.arange(sum(sizes)) % 3
    return FederatedData.split((x, y), (x, y), parts)


# test samples


def test_own_test_samples_are_taken_from_those_of_each_client() -> None:
    before = split([10, 1, 0, 2, 33])
    after = with_own_tests(before, 0.2, seed=0)
    assert list(map(len, after.own_tests)) == [2, 0, 0, 1, 7]
    for i in range(len(before)):
        assert sorted([*after.rows(i), *after.own_tests[i]]) == sorted(before.rows(i))
        assert [*after.rows(i)] == [row for row in before.rows(i) if row in after.rows(i)]
    again, other = (with_own_tests(before, 0.2, seed) for seed in (0, 1))
    assert np.array_equal(again.order, after.order)
    assert not np.array_equal(other.order, after.order)
    assert (before.own_rows(0) == before.rows(0)).all()
    assert (after.own_rows(0) == after.own_tests[0]).all()


def test_a_subset_of_the_test_samples_keeps_the_shares_of_classes() -> None:
    x, y = torch.arange(1000.0)[:, None], torch.tensor([0] * 700 + [1] * 250 + [2] * 50)
    y = y[torch.randperm(1000, generator=torch.Generator().manual_seed(0))]
    data = FederatedData.split((x, y), (x, y), [np.arange(1000)])
    few = with_fewer_tests(data, 100)
    assert np.bincount(few.test_targets) == pytest.approx([70, 25, 5], abs=1)
    assert len(few.test_inputs.unique()) == 100
    assert torch.equal(y[few.test_inputs[:, 0].long()], few.test_targets)
    assert torch.equal(with_fewer_tests(data, 100).test_inputs, few.test_inputs)
    assert with_fewer_tests(data, 1000) is data
    values = FederatedData.split((x, x), (x, x), [np.arange(1000)])
    assert len(with_fewer_tests(values, 7).test_targets.unique()) == 7


def test_the_subset_is_the_same_for_all_seeds() -> None:
    made = experiment(test_subset=50)
    one, two = (made.prepare(seed)[1] for seed in (0, 1))
    assert len(one.test_targets) == 50
    assert torch.equal(one.test_inputs, two.test_inputs)
    assert len(experiment().prepare(0)[1].test_targets) > 50


# results of clients


@pytest.mark.parametrize("name", range(len(ALGORITHMS)), ids=ALGORITHMS)
@pytest.mark.parametrize("share", [0.3, 0.0])
def test_each_client_is_measured_on_its_own_samples(name: int, share: float) -> None:
    made = experiment(client_test=share, fairness=True)
    trial, round, row = last(made, name)
    task, data = trial.task, trial.data
    alone = []
    for i in range(len(data)):
        x = round.server.xbar if ALGORITHMS[name] == "adabest" else round.server.x
        if ALGORITHMS[name] == "local-only" and i in round.clients:
            x = round.clients[i].y
        rows = data.own_tests[i] if share else data.rows(i)
        alone.append(task.evaluate(x, round.buffers, *data.take(rows), data.transform)[1])
    assert row["client_accuracy_sd"] == pytest.approx(np.std(alone))
    assert row["client_accuracy_worst"] == pytest.approx(np.mean(sorted(alone)[:2]))
    assert row["client_accuracy"] == pytest.approx(np.quantile(alone, np.linspace(0, 1, 11)))
    if share:
        assert row["client_accuracy_mean"] == pytest.approx(np.mean(alone))
        found = [line["accuracy"] for line in trial.meter.clients.table(round.state)]
        assert found == pytest.approx(alone)


def test_clients_alone_are_tested_by_the_mean_of_their_models() -> None:
    trial, round, row = last(experiment(validation=2), 2)
    task, data = trial.task, trial.data
    models = [round.clients[i].y if i in round.clients else task.x0 for i in range(len(data))]
    for name, samples in (("", data.test), ("validation_", data.validation)):
        tested = [task.evaluate(y, round.buffers, *samples) for y in models]
        loss, accuracy = np.mean(tested, axis=0)
        assert (row[f"{name}loss"], row[f"{name}accuracy"]) == pytest.approx((loss, accuracy))
    assert math.isnan(row["cloud_accuracy"])
    assert math.isnan(row["aggregate_loss"])


@pytest.mark.parametrize("share", [0.3, 0.0])
def test_personal_results_are_those_after_local_steps(share: float) -> None:
    made = experiment(client_test=share, personal_steps=3, local="Local(lr=0.2, batching='full')")
    trial, round, row = last(made, 0)
    task, data, x = trial.task, trial.data, round.server.x
    reached = []
    for i in range(len(data)):
        y = x
        for _ in range(3):
            y = y - 0.2 * task.gradient(y, {}, *data.batch(data.rows(i)))[1]
        rows = data.own_tests[i] if share else data.rows(i)
        reached.append(task.evaluate(y, round.buffers, *data.take(rows), data.transform))
    assert row["personal_accuracy_mean"] == pytest.approx(np.mean(reached, axis=0)[1])
    table = trial.meter.clients.table(round.state)
    assert [one["personal_loss"] for one in table] == pytest.approx([loss for loss, _ in reached])


def test_many_clients_are_represented_by_a_fixed_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 5)
    made = experiment(client_test=0.3, personal_steps=1)
    drawn = set()
    for name in range(2):
        trial, round, _ = last(made, name)
        table = trial.meter.clients.table(round.state)
        told = tuple(one["client"] for one in table if one["personal_loss"] is not None)
        assert len(told) == 5
        assert told == tuple(trial.meter.clients.some)
        assert all(one["loss"] is not None for one in table)
        drawn.add(told)
    assert len(drawn) == 1


def test_without_accuracy_losses_are_compared() -> None:
    options: dict[str, Any] = {"client_test": 0.3, "personal_steps": 1}
    made = experiment(data=regression(), partition="IID(clients=9)", **options)
    trial, round, row = last(made, 0)
    alone = [one["loss"] for one in trial.meter.clients.table(round.state)]
    assert row["client_loss_mean"] == pytest.approx(np.mean(alone))
    assert row["client_loss_worst"] == pytest.approx(max(alone))
    assert row["client_loss_sd"] == pytest.approx(np.std(alone))
    assert row["personal_loss_mean"] < row["client_loss_mean"]
    assert "client_accuracy" not in row


def test_the_worst_losses_are_the_largest_and_unknown_ones_are_left_out() -> None:
    found = spread("loss", np.array([math.nan, -3.0, -1.0]), least_is_worst=False)
    assert found == {"loss_mean": -2.0, "loss_worst": -1.0, "loss_sd": 1.0}
    assert all(math.isnan(value) for value in spread("loss", np.array([math.nan])).values())


@pytest.mark.parametrize("name", range(len(ALGORITHMS)), ids=ALGORITHMS)
def test_measuring_personal_results_changes_nothing_else(name: int) -> None:
    _, plain, _ = last(experiment(every=1, client_test=0.3), name)
    _, after, _ = last(experiment(every=1, client_test=0.3, personal_steps=2), name)
    assert torch.equal(plain.server.x, after.server.x)
    assert plain.train_loss == after.train_loss


def test_baselines_leave_out_what_they_do_not_have() -> None:
    _, _, row = last(experiment(all_clients=True), 1)
    assert all(math.isnan(row[name]) for name in ("drift", "gsi", "coverage", "delivered"))
    assert "all_accuracy" not in row
    _, _, row = last(experiment(all_clients=True), 2)
    assert 0 < row["coverage"] < 1
    assert row["drift"] > 0
    assert "all_accuracy" not in row


# run directories


def play(folder: Path, made: Experiment, rounds: int | None = None) -> None:
    """Run an experiment, or leave it after so many rounds."""
    for event in run(made, folder, engine="sequential", save_every=1e9):
        if rounds is not None and event.kind == "round":
            rounds -= 1
            if not rounds:
                return


def measured(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def test_a_run_with_baselines_resumes_to_the_same_bits(tmp_path: Path) -> None:
    made = experiment(client_test=0.3, personal_steps=1, test_subset=40)
    play(tmp_path / "whole", made)
    for stop in (2, 3, 2, 2):  # in the middle of the first trial, at its end, and so on
        play(tmp_path / "parts", made, stop)
    play(tmp_path / "parts", made)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert measured(whole) == measured(parts)
    for name in ("clients.csv", *(f"models/{one.name}" for one in (whole / "models").iterdir())):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    with (whole / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 * len(ALGORITHMS)
    assert {row["algorithm"] for row in rows} == {repr(one) for one in made.algorithms}
    assert json.loads((whole / "experiment.json").read_text())["test_samples"] == 40


def test_no_table_of_clients_is_written_unasked(tmp_path: Path) -> None:
    play(tmp_path / "a", experiment(algorithms=["fedavg"], fairness=False))
    assert not (tmp_path / "a" / "clients.csv").exists()
    play(tmp_path / "b", experiment(algorithms=["fedavg"], fairness=True))
    assert (tmp_path / "b" / "clients.csv").exists()


def test_names_of_clients_are_in_the_table() -> None:
    made = experiment(client_test=0.3)
    trial, round, _ = last(made, 0)
    names = tuple(f"site {i}" for i in range(12))
    object.__setattr__(trial.data, "client_names", names)
    assert tuple(one["name"] for one in trial.meter.clients.table(round.state)) == names
