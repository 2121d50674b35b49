"""Runs of AdaBest with fixed betas and with rules, one line of results each.

    python experiments/autobeta/run.py RESULTS.csv --data-dir FOLDER --seeds 0 1

runs what RESULTS.csv lacks, and appends to it. A run's score is the mean accuracy (%) over the
evaluations in the last tenth of the rounds. FOLDER holds the files of EMNIST letters.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import undrift
from undrift.data.files.fetch import use_data_dir
from undrift.engines import Compiled
from undrift.runs.trial import Trial

HERE = Path(__file__).parent

LOCAL = {"lr": 0.1, "lr_decay": 0.998, "weight_decay": 1e-4, "batch_size": 45, "epochs": 5}
HARD = {"lr": 0.1, "batch_size": 16, "epochs": 10}
"""local work without anything that bounds the model"""

TASKS: dict[str, dict[str, Any]] = {
    "letters": {"data": "./letters.py:components", "model": "MLP(hidden=(50, 50))"},
    "cnn": {"data": "./letters.py:images", "model": "./letters.py:cnn"},
    "digits": {"data": "Digits()", "model": "MLP(hidden=(50,))"},
}

SIZES = {  # clients per round, of how many → rounds, betas of the opponents
    (1, 100): (500, (0.0, 0.2, 0.3, 0.4, 0.5, 0.6)),
    (5, 100): (200, (0.6, 0.7, 0.8, 0.85, 0.9, 0.95)),
    (10, 100): (200, (0.7, 0.8, 0.9, 0.93, 0.96)),
    (100, 100): (40, (0.8, 0.9, 0.96, 0.98, 0.99)),
    (10, 1000): (300, (0.4, 0.6, 0.7, 0.8, 0.9, 0.95)),
}

SKEWS = ("IID", "0.3", "0.03")
"""IID, or alpha of the Dirichlet distribution"""


@dataclass(frozen=True)
class Run:
    """One algorithm in one setting on one seed."""

    task: str
    p: int
    clients: int
    skew: str
    rounds: int
    local: str
    algorithm: str
    seed: int

    def experiment(self) -> undrift.Experiment:
        kind = "IID(clients={})" if self.skew == "IID" else f"Dirichlet(clients={{}}, alpha={self.skew})"
        return undrift.Experiment(
            **TASKS[self.task],
            algorithms=[self.algorithm],
            partition=kind.format(self.clients),
            sampler=f"Uniform({self.p})",
            local=undrift.Local(**(HARD if self.local == "hard" else LOCAL)),
            rounds=self.rounds,
            every=max(1, self.rounds // 100),
        )

    def play(self) -> dict[str, Any]:
        """Its results, as a line of the table."""
        began = time.perf_counter()
        experiment = self.experiment()
        (algorithm,) = experiment.algorithms
        task, data = prepared(replace_algorithms(experiment), self.seed)
        trial = Trial(experiment, algorithm, self.seed, task, data, Compiled(1))
        rows = list(trial.rows())
        last = rows[-1]
        tail = [row["accuracy"] for row in rows if row["round"] > 0.9 * self.rounds]
        betas = [row["beta"] for row in rows if "beta" in row]
        return asdict(self) | {
            "score": 0.0 if trial.failure else round(100 * sum(tail) / len(tail), 3),
            "final": round(100 * last["accuracy"], 3),
            "best": round(100 * max(row["accuracy"] for row in rows), 3),
            "x_norm": round(last["x_norm"], 2),
            "x_norm_max": round(max(row["x_norm"] for row in rows), 2),
            "beta": round(sum(betas) / len(betas), 4) if betas else "",
            "gsi2": round(sum(row["gsi"] ** 2 for row in rows) / len(rows), 3),
            "failure": trial.failure or "",
            "seconds": round(time.perf_counter() - began, 1),
        }


def replace_algorithms(experiment: undrift.Experiment) -> undrift.Experiment:
    """The same experiment for all algorithms, by which data are remembered."""
    return replace(experiment, algorithms=("fedavg",))


@cache
def prepared(experiment: undrift.Experiment, seed: int) -> Any:
    return experiment.prepare(seed)


def runs(tasks: list[str], sizes: list[tuple[int, int]], skews: list[str], seeds: list[int],
         algorithms: list[str], local: str, rounds: int | None) -> Iterator[Run]:  # fmt: skip
    """The runs asked for, setting by setting."""
    for task in tasks:
        for p, clients in sizes:
            usual, betas = SIZES.get((p, clients), (200, ()))
            fixed = [f"AdaBest(mu=0.02, beta={beta})" for beta in betas]
            chosen = [one for name in algorithms for one in (fixed if name == "fixed" else [name])]
            for skew in skews:
                for seed in seeds:
                    for name in chosen:
                        yield Run(task, p, clients, skew, rounds or usual, local, name, seed)


def done(path: Path) -> set[Run]:
    """The runs whose results are in the table."""
    if not path.exists():
        return set()
    kinds = {"p": int, "clients": int, "rounds": int, "seed": int}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            Run(**{name: kinds.get(name, str)(line[name]) for name in Run.__annotations__})
            for line in csv.DictReader(file)
        }


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a line, also while another process does so."""
    with path.open("a", encoding="utf-8", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = csv.DictWriter(file, list(line))
        if not path.stat().st_size:
            writer.writeheader()
        writer.writerow(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["letters"], choices=TASKS)
    parser.add_argument("--sizes", nargs="+", default=[f"{p}/{n}" for p, n in SIZES])
    parser.add_argument("--skews", nargs="+", default=SKEWS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--algorithms", nargs="+", default=["fixed"])
    parser.add_argument("--local", default="usual", choices=["usual", "hard"])
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    use_data_dir(args.data_dir and args.data_dir.resolve())
    results = args.results.resolve()
    os.chdir(HERE)  # where ./letters.py and ./rules.py are
    sizes = [(int(p), int(n)) for p, n in (size.split("/") for size in args.sizes)]
    asked = list(runs(args.tasks, sizes, args.skews, args.seeds, args.algorithms, args.local,
                      args.rounds))  # fmt: skip
    for run in asked:
        if run not in done(results):
            line = run.play()
            append(results, line)
            print(f"{run.task} {run.p}/{run.clients} {run.skew} seed {run.seed} {run.algorithm}: "
                  f"{line['score']} beta {line['beta']} |x| {line['x_norm']} ({line['seconds']} s)",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
