"""A model of rounds on several machines, from what `benchmarks.machines` measured on one.

A round is: the driver packs the job once and every block, and unpacks what comes back; all bytes
pass the driver's network card, the job once for each machine; then the machines compute, block by
block, clients of a block side by side on their cores. Nothing overlaps in the model, and machines
do not slow each other down: it is pessimistic about the former and optimistic about the latter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.measure import ROOT, load_results
from benchmarks.tables import between, circumstances, markdown
from undrift.engines.ray.engine import block_size

PAGE = ROOT / "docs" / "howto" / "machines.md"

CORES = 8
"""Of each machine in the model."""

NETWORKS = {"1 Gb/s": 125.0, "10 Gb/s": 1250.0}
"""MB per second."""

MACHINES = (4, 16, 64)


@dataclass(frozen=True)
class Round:
    """What a round needs, as measured; sizes in MB.

    client   CPU seconds of a client
    job      what every machine gets
    there    what goes with a client
    sums     what comes back of a block
    back     what comes back of a client
    """

    client: float
    job: float
    there: float
    sums: float
    back: float
    shipping: dict[str, float]

    @classmethod
    def of(cls, results: dict[str, Any], work: str, rule: str) -> Round:
        """Of a workload and a rule; FedAvg's clients bring nothing but their part of the sums."""
        found, plain = results[f"{work} {rule}"], results[f"{work} FedAvg"]["traffic"]
        traffic, clients = found["traffic"], found["clients"]
        sums = plain["results"] / plain["blocks"]
        return cls(
            client=median(found["seconds"]["local cpu"]) / clients,
            job=traffic["jobs"] / 1e6,
            there=traffic["parts"] / clients / 1e6,
            sums=sums / 1e6,
            back=max(0.0, traffic["results"] - sums * traffic["blocks"]) / clients / 1e6,
            shipping=results["shipping"],
        )

    def alone(self, cohort: int) -> float:
        """Seconds on one machine without Ray."""
        return self.client * cohort / min(CORES, cohort)

    def on(self, machines: int, cohort: int, network: float) -> float:
        """Seconds on several machines."""
        size = block_size(cohort, machines, CORES)
        blocks = math.ceil(cohort / size)
        there, back = cohort * self.there, blocks * self.sums + cohort * self.back
        driver = self.shipping["round"] + blocks * self.shipping["block"]
        driver += (self.job + there) * self.shipping["MB there"] + back * self.shipping["MB back"]
        wire = (machines * self.job + there + back) / network
        turns = math.ceil(blocks / machines) * math.ceil(size / CORES)
        return driver + wire + turns * self.client

    def gain(self, machines: int, cohort: int, network: float) -> float:
        """Times as fast as one machine without Ray."""
        return self.alone(cohort) / self.on(machines, cohort, network)

    def most(self, cohort: int, network: float) -> int:
        """The largest power of two of machines that are used by half or more; 1 if none is."""
        gains = {m: self.gain(m, cohort, network) for m in (2**k for k in range(1, 11))}
        return max((m for m, gain in gains.items() if gain >= m / 2), default=1)


def works(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Workloads and rules that were measured."""
    return [tuple(name.split()) for name in sorted(results) if " " in name]  # type: ignore[misc]


def overhead_table(results: dict[str, Any]) -> str:
    """A round on one site beside the same round without Ray, as measured."""
    rows = []
    for work, rule in works(results):
        found = results[f"{work} {rule}"]
        seconds = {name: median(some) for name, some in found["seconds"].items()}
        both = seconds["driver cpu"] + seconds["site cpu"]
        traffic = found["traffic"]
        rows.append(
            (
                f"{work}, {rule}",
                f"{seconds['local cpu']:.2f}",
                f"{both:.2f}",
                f"{both / seconds['local cpu']:.2f}",
                f"{seconds['driver cpu']:.3f}",
                f"{(traffic['jobs'] + traffic['parts']) / 1e6:.1f}",
                f"{traffic['results'] / 1e6:.1f}",
            )
        )
    heads = ("round", "local, CPU s", "Ray, CPU s", "×", "of which driver", "MB there", "MB back")
    ship = results["shipping"]
    cost = (
        f"Shipping, in CPU seconds of the driver: {1e3 * ship['round']:.1f} ms for a job, "
        f"{1e3 * ship['block']:.2f} ms for a block, {1e3 * ship['MB there']:.2f} ms for a MB "
        f"there and {1e3 * ship['MB back']:.2f} ms for a MB back."
    )
    measured = circumstances(*(one for one in results.values()))
    return "\n\n".join([markdown(heads, rows), cost, measured])


def scaling_table(results: dict[str, Any]) -> str:
    """What several machines would give: computed, not measured."""
    rows = []
    for work, rule in works(results):
        needs = Round.of(results, work, rule)
        for cohort in (10, 100, 1000):
            slow, fast = NETWORKS.values()
            gains = [f"{needs.gain(m, cohort, fast):.1f}" for m in MACHINES]
            most = [str(needs.most(cohort, network)) for network in (slow, fast)]
            alone = f"{needs.alone(cohort):.2f}"
            rows.append((f"{work}, {rule}", str(cohort), alone, *gains, *most))
    heads = ("round", "cohort", "one machine, s", *(f"{m} machines, ×" for m in MACHINES))
    ends = (f"pays up to, at {name}" for name in NETWORKS)
    return markdown((*heads, *ends), rows)


def write_page() -> None:
    """Write both tables, from the committed results."""
    results = load_results("machines")
    text = between(PAGE.read_text(encoding="utf-8"), "overhead", overhead_table(results))
    PAGE.write_text(between(text, "scaling", scaling_table(results)), encoding="utf-8")
