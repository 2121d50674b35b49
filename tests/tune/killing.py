"""Kills a study again and again, and shares one: python -m tests.tune.killing FOLDER KILLS"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from tests.runs.killing import CALLS, deadly
from tests.tune.studies import play, study


def child(folder: Path, suicide: int = 0) -> int:
    """A new process that runs the study; it may kill itself at one of its writes."""
    if number := os.fork():
        return number
    countdown = [suicide]
    for name in CALLS:
        setattr(os, name, deadly(getattr(os, name), countdown, after=suicide % 2 == 0))
    play(study("fedavg", rounds=3, trials=4, halving=True, min_rounds=1), folder)
    os._exit(0)


def main(root: Path, kills: int) -> None:
    dice = random.Random(3)
    os.waitpid(child(root / "whole"), 0)
    killed = 0
    while True:
        most = 60 if killed < kills else 0
        _, status = os.waitpid(child(root / "torn", dice.randint(1, most) if most else 0), 0)
        if not os.WIFSIGNALED(status):
            break
        killed += 1
    both = [child(root / "shared") for _ in range(2)]
    ended = [os.waitpid(number, 0)[1] for number in both]
    sys.stdout.write(f"{killed} {status} {ended}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
