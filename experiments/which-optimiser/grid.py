"""Runs the grid of docs/howto/choosing.md: python experiments/which-optimiser/grid.py OUT

One `undrift sweep` per cell, of 1, 5, 10 or all 100 training clients per round, and of labels from
evenly spread to strongly skewed. Interrupted, the same command goes on; numbers of clients after
OUT run only those cells, so that several processes can share the grid.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = {1: 1000, 5: 200, 10: 100, 100: 20}
"""clients per round → rounds: the same client work with 1, 5 and 10, twice that with all"""
PARTITIONS = {
    "iid": "IID(clients=120)",
    "0.3": "Dirichlet(clients=120, alpha=0.3)",
    "0.03": "Dirichlet(clients=120, alpha=0.03)",
}


def main(out: Path, some: list[int]) -> None:
    for clients in some or ROUNDS:
        rounds = ROUNDS[clients]
        for alpha, partition in PARTITIONS.items():
            changes = [f"sampler=Uniform({clients})", f"rounds={rounds}", f"every={rounds // 5}"]
            changes.append(f"partition={partition}")
            flags = [flag for one in changes for flag in ("--set", one)]
            cell = out / f"{clients}-{alpha}"
            command = ["undrift", "sweep", HERE / "base.toml", "--over", "local.lr=0.1,0.3"]
            subprocess.run([*command, *flags, "--out", cell, "--workers", "1"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(one) for one in sys.argv[2:]])
