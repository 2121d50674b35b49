"""Small studies, and what must be the same in two of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from undrift.experiment.experiment import Experiment
from undrift.tune import Event, Study, tune

OPTIONS: dict[str, Any] = {"engine": "sequential", "save_every": 1e9}


def experiment(*algorithms: str, **options: Any) -> Experiment:
    texts: dict[str, Any] = {
        "algorithms": algorithms or ("fedavg",),
        "data": "Synthetic(clients=8, samples=12)",
        "partition": "Natural()",
        "model": "Linear()",
        "local": "Local(lr=0.1, steps=1, batch_size=4)",
        "sampler": "Uniform(2)",
        "rounds": 2,
        "validation": 3,
    }
    return Experiment(**texts | options)


def study(*algorithms: str, rounds: int = 2, **options: Any) -> Study:
    usual = {"experiment": experiment(*algorithms, rounds=rounds), "trials": 3, "final_seeds": 0}
    return Study(**usual | options)


def play(made: Study, folder: Path, stop: int = -1) -> list[Event]:
    """Run a study, or only until so many events have come."""
    events = []
    happening = tune(made, folder, **OPTIONS)
    for event in happening:
        events.append(event)
        if len(events) == stop:
            happening.close()
    return events


def ledger(folder: Path) -> list[dict[str, Any]]:
    """All trials, but for the time that they took."""
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    for line in lines:
        del line["cost"]["seconds"]
    return lines


def rows(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: one for key, one in row.items() if key != "seconds"} for row in found]
