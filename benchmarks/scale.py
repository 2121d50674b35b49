"""What a round costs as the federation grows: `make bench-scale`.

AdaBest on the model of W1, whose clients share a few samples, so that a million of them are two
arrays of integers. Results go to results/scale.json, tables to the terminal.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cyclopts
import numpy as np
import torch

from benchmarks.contestants import ENGINES, RULES, present
from benchmarks.measure import (
    circumstances,
    fresh,
    interleave,
    load_results,
    peak_memory,
    store_results,
)
from benchmarks.tables import scale_tables
from benchmarks.touched import measure_touched
from benchmarks.workloads import WORKLOADS
from undrift import engines
from undrift.data import FederatedData
from undrift.federation.rounds import Round, rounds
from undrift.federation.sampling import Explicit, Sampler, Uniform
from undrift.training.task import Task
from undrift.training.work import Local

REGISTERED = [10**k for k in range(2, 7)]
SAMPLED = [10, 100, 1000]
POOL, OWN = 1000, 20
"""samples there are, and samples of each client"""

FEW, MANY = 1, 115
"""local steps: one, and as many as in W1"""

ENGINE = present()[-1]
"""the fastest there is"""


def federation(registered: int) -> FederatedData:
    """Clients that share samples."""
    torch.manual_seed(0)
    inputs, targets = WORKLOADS["W1"].sample(POOL)
    order = np.random.default_rng(0).integers(POOL, size=registered * OWN)
    offsets = OWN * np.arange(registered + 1)
    return FederatedData(inputs, targets, order, offsets, inputs[:0], targets[:0])


def play(registered: int, sampler: Sampler, steps: int, rule: str = "AdaBest") -> Iterator[Round]:
    """Rounds without end."""
    _, model = WORKLOADS["W1"].models()
    return rounds(
        RULES[rule],
        Task(model),
        federation(registered),
        total=10**9,
        sampler=sampler,
        local=Local(lr=0.1, weight_decay=1e-4, batch_size=45, steps=steps, batching="wrap"),
        engine=getattr(engines, ENGINE)(**ENGINES[ENGINE]),
    )


def alone(registered: int, sampled: int, rule: str, count: int = 10) -> None:
    """Print seconds of rounds of one step with the same clients, and the peak of memory in MB."""
    torch.set_num_threads(1)
    played = play(registered, Explicit((range(sampled),)), FEW, rule)
    next(played)
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        next(played)
        seconds.append(round(time.perf_counter() - began, 6))
    print(json.dumps({"seconds": seconds, "memory MB": peak_memory()}))


def measure_registered(repetitions: int) -> dict[str, Any]:
    """Ten clients of more and more, with long and with short local work."""
    seconds = {}
    for steps in (MANY, FEW):
        federations = {str(n): play(n, Uniform(10), steps) for n in REGISTERED}
        runs = {n: partial(next, some) for n, some in federations.items()}
        for run in runs.values():
            run()
        kind = f"{steps} step{'s' * (steps > 1)} each"
        seconds[kind] = interleave(runs, repetitions, f"registered, {kind}")
    memory = {str(n): _alone(n, 10, "AdaBest")["memory MB"] for n in REGISTERED}
    return {**circumstances(), "engine": ENGINE, "seconds": seconds, "memory MB": memory}


def measure_sampled() -> dict[str, Any]:
    """More and more clients of the same, with a rule that has client memory and one without."""
    rows = [
        {"rule": rule, "sampled": count, **_alone(10**4, count, rule)}
        for rule in ("FedAvg", "AdaBest")
        for count in SAMPLED
    ]
    return {**circumstances(), "engine": ENGINE, "rows": rows}


def _alone(*arguments: object) -> Any:
    return fresh(f"from benchmarks.scale import alone; alone{arguments!r}")


def main(*, repetitions: int = 7, rows: int = 10**5, folder: Path | None = None) -> None:
    """Measure and print.

    Parameters
    ----------
    repetitions
        How often every number of registered clients plays a round.
    rows
        The most rows in the store of client memory.
    folder
        Where the store is put for a while; the system's folder for such files if not given.
    """
    torch.set_num_threads(1)
    store_results("scale", {"registered": measure_registered(repetitions)})
    store_results("scale", {"sampled": measure_sampled()})
    store_results("scale", {"touched": measure_touched(rows, folder)})
    print(scale_tables(load_results("scale")))


if __name__ == "__main__":
    cyclopts.run(main)
