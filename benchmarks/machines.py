"""What the Ray engine costs beside the local one, and what several machines would give.

    python -m benchmarks.machines [W1 ...] [--repetitions N]      (make bench-ray)

One site with one worker on loopback plays the same rounds as `Compiled(workers=1)`, in turn.
Results go to results/machines.json, tables to docs/howto/machines.md. CPU seconds are those of
driver and site together; they, not wall seconds, can be compared on a busy machine. What several
machines would give is computed from these results (`benchmarks.scaling`), not measured.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import cyclopts
import torch

from benchmarks.contestants import RULES
from benchmarks.measure import ROOT, circumstances, store_results
from benchmarks.scaling import write_page
from benchmarks.workloads import WORKLOADS, Workload
from undrift.engines import Compiled, Engine, Ray
from undrift.federation.rounds import rounds
from undrift.federation.sampling import Explicit
from undrift.training.task import Task
from undrift.training.trainer import Trainer

MEASURED = ("W1", "W2", "W3")
VECTOR = 4 * 2**20
"""Floats in the vector that is shipped: 16 MiB."""


@contextmanager
def cluster() -> Iterator[None]:
    """One node with one CPU, on loopback."""
    os.environ |= {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # 15 by default, which a busy machine starves
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    import ray  # which reads the environment
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    ray.init(made.address, log_to_driver=False, _node_ip_address="127.0.0.1")
    try:
        yield
    finally:
        ray.shutdown()
        made.shutdown()


@dataclass(frozen=True)
class Carrying:
    """A job that takes a vector there, or brings one back."""

    there: torch.Tensor
    back: int

    def __call__(self, trainer: Trainer, item: object) -> torch.Tensor:
        return torch.zeros(self.back)


def clock(trainer: Trainer, item: object) -> float:
    """CPU seconds of the process that runs it."""
    return time.process_time()


def played(work: Workload, rule: str, engine: Engine, task: Task) -> Iterator[Any]:
    """Rounds of a workload in which everybody takes part."""
    data = work.data()
    sampler, local = Explicit((range(len(data)),)), work.local
    return rounds(RULES[rule], task, data, total=10**9, sampler=sampler, local=local, engine=engine)


def measure(work: Workload, rule: str, repetitions: int) -> dict[str, Any]:
    """Rounds on one site beside the same rounds here: CPU seconds, wall seconds, MB."""
    task = Task(work.models()[1], work.loss)
    remote, local = Ray(workers=1), Compiled(workers=1)
    here, there = played(work, rule, local, task), played(work, rule, remote, task)
    for _ in range(2):  # in which steps are traced
        next(here), next(there)
    found: dict[str, list[float]] = {
        name: [] for name in ("local cpu", "local wall", "driver cpu", "site cpu", "ray wall")
    }
    fleet = remote._fleet
    fleet.traffic.clear()
    for _ in range(repetitions):
        wall, cpu = time.perf_counter(), time.process_time()
        next(here)
        found["local cpu"].append(time.process_time() - cpu)
        found["local wall"].append(time.perf_counter() - wall)
        (site,) = remote.map(clock, task, [None])
        before = fleet.traffic.copy()
        wall, cpu = time.perf_counter(), time.process_time()
        next(there)
        found["driver cpu"].append(time.process_time() - cpu)
        found["ray wall"].append(time.perf_counter() - wall)
        traffic = fleet.traffic - before
        found["site cpu"].append(next(remote.map(clock, task, [None])) - site)
    remote.close()
    return {
        **circumstances(),
        "parameters": len(task.x0),
        "clients": work.clients,
        "traffic": dict(traffic),
        "seconds": {name: [round(one, 5) for one in some] for name, some in found.items()},
    }


def measure_shipping(repetitions: int) -> dict[str, Any]:
    """CPU seconds of the driver for a job, a block, and a MB there and back."""
    work = WORKLOADS["W4"]
    task, engine = Task(work.models()[1], work.loss), Ray(workers=1)
    engine.prepare(task, work.data(), work.local)
    fleet, none = engine._fleet, torch.zeros(0)

    def cpu(job: Carrying, blocks: int) -> float:
        seconds = []
        for _ in range(1 + repetitions):
            began = time.process_time()
            list(fleet.run("map", job, [[None]] * blocks))
            seconds.append(time.process_time() - began)
        return median(seconds[1:])

    one, many = cpu(Carrying(none, 0), 1), cpu(Carrying(none, 0), 65)
    out = cpu(Carrying(torch.zeros(VECTOR), 0), 1)
    back = cpu(Carrying(none, VECTOR), 1)
    engine.close()
    block, size = (many - one) / 64, 4 * VECTOR / 1e6
    return {
        **circumstances(),
        "round": max(0.0, one - block),
        "block": block,
        "MB there": max(0.0, out - one) / size,
        "MB back": max(0.0, back - one) / size,
    }


def main(*names: str, repetitions: int = 5) -> None:
    """Measure, and write the tables.

    Parameters
    ----------
    names
        Workloads; W1, W2 and W3 if none is given.
    repetitions
        Rounds of each kind.
    """
    torch.set_num_threads(1)
    with cluster():
        store_results("machines", {"shipping": measure_shipping(repetitions)})
        for name in names or MEASURED:
            for rule in ("FedAvg", "AdaBest"):
                result = measure(WORKLOADS[name], rule, repetitions)
                store_results("machines", {f"{name} {rule}": result})
    write_page()


if __name__ == "__main__":
    cyclopts.run(main)
