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
from itertools import product
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

SIZES = {  # clients per round, of how many → rounds, betas of the opponents
    (1, 100): (500, (0.0, 0.2, 0.3, 0.4, 0.5, 0.6)),
    (5, 100): (200, (0.6, 0.7, 0.8, 0.85, 0.9, 0.95)),
    (10, 100): (200, (0.7, 0.8, 0.9, 0.93, 0.96)),
    (100, 100): (40, (0.8, 0.9, 0.96, 0.98, 0.99)),
    (10, 1000): (300, (0.4, 0.6, 0.7, 0.8, 0.9, 0.95)),
}
CNN_SIZES = {
    (1, 100): (300, (0.0, 0.2, 0.3, 0.4, 0.5)),
    (5, 100): (120, (0.6, 0.7, 0.8, 0.9)),
    (10, 100): (100, (0.8, 0.9, 0.95)),
    (100, 100): (30, (0.8, 0.9, 0.96)),
    (10, 1000): (200, (0.7, 0.8, 0.9)),
}

SKEWS = ("IID", "0.3", "0.03")
"""IID, or alpha of the Dirichlet distribution"""


class Late(undrift.Experiment):
    """An experiment that is evaluated ten times, and ten times more in its last tenth."""

    def evaluates(self, round: int) -> bool:
        tenth = self.rounds // 10
        return round % tenth == 0 or (round > 9 * tenth and round % max(1, tenth // 10) == 0)


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

    def experiment(self) -> Late:
        local = HARD if self.local == "hard" else LOCAL
        if self.task == "letters":
            what = {"data": "./letters.py:components", "model": "MLP(hidden=(50, 50))"}
        elif self.task == "cnn":  # 30 or 11 samples a client
            of_each = 300 if self.clients == 100 else 1100
            what = {"data": f"./letters.py:images({of_each})", "model": "./letters.py:cnn"}
            local = local | {"batch_size": 15}
        else:
            what = {"data": "Digits()", "model": "MLP(hidden=(50,))"}
        kind = "IID({})" if self.skew == "IID" else f"Dirichlet({{}}, alpha={self.skew})"
        return Late(
            **what,
            algorithms=[self.algorithm],
            partition=kind.format(f"clients={self.clients}"),
            sampler=f"Uniform({self.p})",
            local=undrift.Local(**local),
            rounds=self.rounds,
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


def fixed(beta: float) -> str:
    return f"AdaBest(mu=0.02, beta={beta})"


def tuned(task: str, p: int, clients: int, skew: str) -> float:
    """The fixed beta with the best mean score on the seeds that were explored."""
    scores: dict[str, list[float]] = {}
    for line in table(HERE / "explore.csv"):
        here = (line["task"], int(line["p"]), int(line["clients"]), line["skew"])
        if here == (task, p, clients, skew) and line["algorithm"].startswith("AdaBest(mu"):
            scores.setdefault(line["algorithm"], []).append(float(line["score"]))
    seeds = max(map(len, scores.values()))
    means = {name: sum(some) / seeds for name, some in scores.items() if len(some) == seeds}
    return float(max(means, key=lambda name: means[name]).split("beta=")[1].rstrip(")"))


def opponents(name: str, task: str, p: int, clients: int, skew: str) -> list[str]:
    """The algorithms that a name stands for in a setting: "fixed", "tuned", "near" or itself."""
    known = CNN_SIZES if task == "cnn" else SIZES
    _, betas = known.get((p, clients), (0, ()))
    if name == "fixed":
        return list(map(fixed, betas))
    if name not in ("tuned", "near"):
        return [name]
    best = tuned(task, p, clients, skew)
    k = betas.index(best)
    return [fixed(best)] if name == "tuned" else list(map(fixed, betas[max(0, k - 1) : k + 2]))


def runs(args: argparse.Namespace) -> Iterator[Run]:
    """The runs asked for, seed by seed."""
    sizes = [(int(p), int(n)) for p, n in (size.split("/") for size in args.sizes)]
    for seed, task, (p, clients), skew in product(args.seeds, args.tasks, sizes, args.skews):
        known = CNN_SIZES if task == "cnn" else SIZES
        rounds = args.rounds or known[p, clients][0]
        for name in args.algorithms:
            for one in opponents(name, task, p, clients, skew):
                yield Run(task, p, clients, skew, rounds, args.local, one, seed)


def table(path: Path) -> list[dict[str, str]]:
    """The lines of a table of results; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def done(path: Path) -> set[Run]:
    """The runs whose results are in the table."""
    kinds = {"p": int, "clients": int, "rounds": int, "seed": int}
    names = Run.__annotations__
    return {Run(**{n: kinds.get(n, str)(line[n]) for n in names}) for line in table(path)}


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
    parser.add_argument(
        "--tasks", nargs="+", default=["letters"], choices=["letters", "cnn", "digits"]
    )
    parser.add_argument("--sizes", nargs="+", default=[f"{p}/{n}" for p, n in SIZES])
    parser.add_argument("--skews", nargs="+", default=SKEWS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--algorithms", nargs="+", default=["fixed"],
                        help="algorithms; or fixed: all fixed betas, tuned: the best of them in "
                        "explore.csv, near: that and its neighbours")  # fmt: skip
    parser.add_argument("--local", default="usual", choices=["usual", "hard"])
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()
    use_data_dir(args.data_dir and args.data_dir.resolve())
    results = args.results.resolve()
    os.chdir(HERE)  # where ./letters.py and ./rules.py are
    for run in list(runs(args)):
        if run not in done(results):
            line = run.play()
            append(results, line)
            print(f"{run.task} {run.p}/{run.clients} {run.skew} seed {run.seed} {run.algorithm}: "
                  f"{line['score']} beta {line['beta']} |x| {line['x_norm']} ({line['seconds']} s)",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
