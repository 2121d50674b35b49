"""Runs the grid of docs/howto/choosing.md: python experiments/which-optimiser/grid.py OUT

One `undrift sweep` per cell, of 1, 5, 10 or all 100 training clients a round, and of labels from
evenly spread to strongly skewed. Interrupted, the same command goes on.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = {5: 200, 10: 100, 1: 1000, 100: 25}
"""clients per round → rounds; with 1, 5 and 10 clients, the same client work"""
PARTITIONS = {
    "iid": "IID(clients=120)",
    "0.3": "Dirichlet(clients=120, alpha=0.3)",
    "0.03": "Dirichlet(clients=120, alpha=0.03)",
}


def main(out: Path) -> None:
    for clients, rounds in ROUNDS.items():
        for alpha, partition in PARTITIONS.items():
            changes = [f"sampler=Uniform({clients})", f"rounds={rounds}", f"every={rounds // 5}"]
            changes.append(f"partition={partition}")
            flags = [flag for one in changes for flag in ("--set", one)]
            cell = out / f"{clients}-{alpha}"
            command = ["undrift", "sweep", HERE / "base.toml", "--over", "local.lr=0.1,0.3"]
            subprocess.run([*command, *flags, "--out", cell, "--workers", "1"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
