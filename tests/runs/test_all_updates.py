"""Runs that compare cohorts with all clients: the same runs, with three numbers more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_survival import rows
from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.runs.runner import run

NEW = ("all_gsi", "all_square", "cohort_cosine")


def experiment(**options: Any) -> Experiment:
    texts: dict[str, Any] = {
        "algorithms": ["fedglad+adabest", "centralised"],
        "data": "Synthetic(clients=9, samples=20)",
        "partition": "Natural()",
        "model": "Linear()",
        "local": "Local(lr=0.1, steps=2, batch_size=4)",
        "sampler": "Uniform(3)",
        "rounds": 7,
        "every": 2,
        "dropout": 0.2,
    }
    return Experiment(**texts | options)


def play(made: Experiment, folder: Path, engine: str = "sequential", until: int = 99) -> Any:
    """The rows of a run, which is left after some events, and its models."""
    events = run(made, folder, engine=engine, save_every=0)
    for number, _ in enumerate(events, 1):
        if number == until:
            events.close()
    models = {path.name: path.read_bytes() for path in (folder / "models").glob("*")}
    return rows(folder), models


@pytest.mark.parametrize("engine", ["sequential", "compiled"])
def test_a_run_stays_the_same(tmp_path: Path, engine: str) -> None:
    plain, models = play(experiment(), tmp_path / "plain", engine)
    probed, same = play(experiment(all_updates=True), tmp_path / "probed", engine)
    assert models == same
    for a, b in zip(plain, probed, strict=True):
        assert all(a[name] is None for name in NEW)
        if a["algorithm"] != "Centralised()":
            found = [b.pop(name) for name in NEW]
            assert None not in found
            a = {name: value for name, value in a.items() if name not in NEW}
        assert a == b


@pytest.mark.parametrize("until", [4, 8])
def test_a_run_that_was_left_goes_on(tmp_path: Path, until: int) -> None:
    made = experiment(all_updates=True)
    some, _ = play(made, tmp_path / "left", until=until)
    left, models = play(made, tmp_path / "left")
    whole, same = play(made, tmp_path / "whole")
    assert len(some) < len(whole)
    assert (left, models) == (whole, same)


def test_experiments_without_it_keep_their_identity() -> None:
    assert "all_updates" not in experiment().resolved()
    assert experiment().hash == experiment(all_updates=False).hash
    assert experiment().hash != experiment(all_updates=True).hash
    with pytest.raises(UndriftError, match=r"\(all_updates=True\): no algorithm here has cohorts"):
        experiment(algorithms=["centralised", "local-only"], all_updates=True)
