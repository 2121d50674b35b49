"""The work that all contestants do, and the watch that times them. Needs nothing but numpy.

One round: ten clients out of ten, FedAvg, batches of 45, SGD at 0.1 with weight decay 1e-4.

The input `dead` is zero in all samples, so the loss has no gradient in the weights that read it:
they only decay, by the same factor in every step. How far they shrank in a round tells how many
steps the clients made, whatever the library does inside.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CLIENTS, BATCH, LR, DECAY = 10, 45, 0.1, 1e-4


@dataclass(frozen=True)
class Work:
    """What one client has, and how often it goes through it."""

    name: str
    about: str
    shape: tuple[int, ...]
    classes: int
    samples: int
    epochs: int
    dead: int
    """the input feature or channel that is always zero"""

    @property
    def steps(self) -> int:
        """Local steps of a client in a round."""
        return -(-self.samples // BATCH) * self.epochs

    def client(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of client i: noise, the same for everybody."""
        random = np.random.default_rng(i)
        inputs = random.standard_normal((self.samples, *self.shape), np.float32)
        inputs[:, self.dead] = 0
        return inputs, random.integers(0, self.classes, self.samples)

    def clients(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [self.client(i) for i in range(CLIENTS)]


W1 = Work("W1", "MLP 784-100-100-26", (784,), 26, samples=1020, epochs=5, dead=0)
W2 = Work("W2", "CNN 64-64-384-192-100", (3, 32, 32), 100, samples=450, epochs=1, dead=2)
WORKS = {work.name: work for work in (W1, W2)}


@dataclass(frozen=True)
class Order:
    """What a runner was asked for."""

    work: Work
    rounds: int
    setup: str

    @property
    def threads(self) -> int:
        """The number that the set-up begins with."""
        return int(self.setup.split()[0])


def order(about: str | None, setups: tuple[str, ...]) -> Order:
    """Read the command line of a runner."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("--rounds", type=int, default=5, help="after one to warm up")
    parser.add_argument("--setup", choices=setups, default=setups[0])
    given = parser.parse_args()
    return Order(WORKS[given.work], given.rounds, given.setup)


class Watch:
    """Takes the time at the end of every round; the first round counts as start-up."""

    def __init__(self, library: str, version: str, order: Order, root: int | None = None) -> None:
        """root  the process that everything began with; this one if not given"""
        self.facts = {"library": library, "version": version, "setup": order.setup}
        self.work = order.work
        self.ends: list[float] = []
        self.counts: list[int] = []
        self.weights: list[np.ndarray] = []
        self.root = root or os.getpid()
        self.peak = 0
        threading.Thread(target=self._look, daemon=True).start()

    def lap(self, steps: int, weights: np.ndarray) -> None:
        """A round is over.

        steps    local steps counted since the beginning
        weights  those that read the dead input, in the server's model
        """
        self.ends.append(time.perf_counter())
        self.counts.append(int(steps))
        self.weights.append(np.array(weights, np.float64))

    def report(self, **more: object) -> None:
        """Print everything as one line of JSON."""
        now = time.perf_counter()
        norms = np.log([np.linalg.norm(weights) for weights in self.weights])
        proved = CLIENTS * np.diff(norms) / np.log1p(-LR * DECAY)
        self.facts |= {
            "work": self.work.name,
            "startup": round(self.ends[0] - now + _age(self.root), 3),
            "seconds": np.diff(self.ends).round(4).tolist(),
            "shutdown": round(now - self.ends[-1], 3),
            "steps": np.diff(self.counts).tolist(),
            "steps by decay": proved.round(1).tolist(),
            "expected": CLIENTS * self.work.steps,
            "megabytes": round(self.peak / 1e6),
        }
        print(json.dumps(self.facts | more), flush=True)

    def _look(self) -> None:
        """Twice a second: the memory of all processes, shared pages counted once."""
        while True:
            self.peak = max(self.peak, sum(_resident(pid) for pid in family(self.root)))
            time.sleep(0.5)


def _stat(pid: int | str) -> list[str]:
    """Fields of /proc/PID/stat from the third on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _age(pid: int) -> float:
    """Seconds since a process began."""
    up = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    return up - int(_stat(pid)[19]) / os.sysconf("SC_CLK_TCK")


def family(root: int) -> Iterator[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                children.setdefault(int(_stat(entry.name)[1]), []).append(int(entry.name))
            except OSError:
                continue  # it has just ended
    todo = [root]
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        yield pid


def _resident(pid: int) -> int:
    """Bytes of a process in memory, its share of shared pages."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
