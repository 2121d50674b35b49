"""Noise of validation clients: parts, intervals, differences."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.tune.studies import ledger, play, rows, study
from undrift.report.estimate import Estimate
from undrift.report.score import ACCURACY, RMSE
from undrift.tune.noise import estimate, gap, half_width, needed, parts


def run(folder: Path, name: str, *clients: tuple[int, float]) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [f"FedAvg(),0,{i},{n},{n},{value}" for i, (n, value) in enumerate(clients)]
    head = f"algorithm,seed,client,samples,answers,{name}"
    (folder / "validation.csv").write_text("\n".join([head, *lines]) + "\n")
    return folder


def test_clients_of_one_size_count_by_their_accuracies(tmp_path: Path) -> None:
    some = parts(run(tmp_path, "right", (10, 2), (10, 6), (10, 10)), 0.6, ACCURACY)
    assert some == pytest.approx([0.2, 0.6, 1.0])
    assert estimate(some, ACCURACY) == Estimate.of([0.2, 0.6, 1.0], (0.0, 1.0))


def test_the_mean_of_the_parts_is_the_result(tmp_path: Path) -> None:
    right = parts(run(tmp_path, "right", (1, 0), (20, 19), (9, 3)), 22 / 30, ACCURACY)
    assert np.mean(right) == pytest.approx(22 / 30)
    root = math.sqrt(22 / 30)
    assert np.mean(parts(run(tmp_path, "loss", (1, 0), (20, 19), (9, 3)), root, RMSE)) == (
        pytest.approx(root)
    )


def test_an_interval_holds_the_truth_about_as_often_as_it_says(tmp_path: Path) -> None:
    dice, hits = np.random.default_rng(0), 0
    for _ in range(200):
        sizes = dice.integers(5, 40, 20)
        right = [dice.binomial(n, dice.beta(8, 2)) for n in sizes]
        some = parts(
            run(tmp_path, "right", *zip(sizes, right, strict=True)),
            sum(right) / sizes.sum(),
            ACCURACY,
        )
        low, high = estimate(some, ACCURACY).interval
        hits += low <= 0.8 <= high
    assert 180 <= hits <= 199


def test_the_same_clients_cancel(tmp_path: Path) -> None:
    one = parts(run(tmp_path, "right", (10, 2), (10, 6), (10, 10)), 0.6, ACCURACY)
    other = parts(run(tmp_path, "right", (10, 1), (10, 5), (10, 9)), 0.5, ACCURACY)
    assert gap(one, other).interval == pytest.approx((0.1, 0.1))
    assert gap(one, other[:2]) is None
    assert parts(run(tmp_path, "right", (10, 2)), 0.2, ACCURACY) is None


def test_half_a_difference_takes_four_times_the_clients() -> None:
    one = Estimate(0.1, 0.3, 16)
    assert needed(Estimate(half_width(one), 0.3, 16)) == 16
    assert needed(Estimate(half_width(one) / 2, 0.3, 16)) == 64


def test_a_study_tells_what_its_clients_can_tell(tmp_path: Path) -> None:
    play(study("fedavg", over={"local.lr": [0.1, 1.0]}, search="grid", rounds=3), tmp_path)
    best = max(ledger(tmp_path), key=lambda one: one["objective"])
    there = tmp_path / best["run"]
    (last,) = rows(there)[-1:]
    some = parts(there, best["objective"], ACCURACY)
    assert len(some) == 3
    assert np.mean(some) == pytest.approx(last["validation_accuracy"])
    text = (tmp_path / "table.md").read_text()
    assert "intervals over the 3 validation clients of all seeds" in text
    assert "with 12 clients half of that" in text
    assert " of 2 |" in text
