"""Kills a run again and again, in a process of its own: python killing.py FOLDER KILLS

A child of this process runs the experiment. It is killed at random moments, or by its own hand just
before or after a random one of its writes, where most could go wrong. What it left is gone on with
by the next child. Prints how many were killed, and where the runs are.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.runs.runner import run

CALLS = ("replace", "fsync", "pwrite", "truncate")


def experiment() -> Experiment:
    """All kinds of state and end: clients' memories, a sampler that learns, failures, stops."""
    texts: dict[str, Any] = {
        "algorithms": ["adabest", "ServerOpt(scaffold, Adam())", "fedadam(lr=1e38)"],
        "data": "digits",
        "partition": "Dirichlet(clients=20, alpha=0.3)",
        "model": "Linear()",
        "local": "Local(lr=0.1, steps=2, batch_size=8)",
        "sampler": "AdaFL(clients=4)",
        "stop": ["Target(0.895)"],  # which AdaBest reaches
    }
    return Experiment(**texts, rounds=24, seeds=(0, 1), every=1, dropout=0.1, all_clients=True)


def play(folder: Path) -> None:
    for _ in run(experiment(), folder, engine="sequential", save_every=0.01):
        pass


def deadly(call: Callable[..., Any], countdown: list[int], after: bool) -> Callable[..., Any]:
    """A call of the system that, the n-th time, kills this process."""

    def wrapped(*given: Any, **named: Any) -> Any:
        countdown[0] -= 1
        if countdown[0] == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*given, **named)
        if countdown[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


def child(folder: Path, suicide: tuple[int, bool] | None) -> int:
    """A new process that runs the experiment."""
    number = os.fork()
    if number:
        return number
    if suicide:
        countdown = [suicide[0]]
        for name in CALLS:
            setattr(os, name, deadly(getattr(os, name), countdown, suicide[1]))
    try:
        play(folder)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(root: Path, kills: int) -> None:
    dice = random.Random(5)
    killed, folders = 0, 0
    os.waitpid(child(root / "whole", None), 0)  # a child, as torch must not run before a fork
    while killed < kills:
        folder = root / f"torn{folders}"
        folders += 1
        while not _survives(dice, folder):
            killed += 1
    sys.stdout.write(json.dumps({"killed": killed, "folders": folders, "refused": refused(root)}))


def _survives(dice: random.Random, folder: Path) -> bool:
    """Run until the end or a violent one; whether it was the end."""
    if dice.random() < 0.5:
        number = child(folder, (dice.randint(1, 300), dice.random() < 0.5))
    else:
        number = child(folder, None)
        time.sleep(dice.uniform(0, 0.8))
        os.kill(number, signal.SIGKILL)
    _, status = os.waitpid(number, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a child failed by itself"
    return not os.WIFSIGNALED(status)


def refused(root: Path) -> list[Any]:
    """What a second process is told while the first one runs, and who the first one is."""
    number = child(root / "shared", None)
    while not (root / "shared" / "metrics.jsonl").exists():
        time.sleep(0.001)
    os.kill(number, signal.SIGSTOP)
    try:
        play(root / "shared")
        said = ""
    except UndriftError as error:
        said = str(error)
    finally:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
    return [said, number]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
