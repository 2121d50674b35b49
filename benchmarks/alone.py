"""An engine alone in a new process: what it takes to start, and memory."""

from __future__ import annotations

import json
import time


def imports() -> dict[str, float]:
    """Seconds to import torch, and undrift after it."""
    seconds = {}
    for name in ("torch", "undrift"):
        began = time.perf_counter()
        __import__(name)
        seconds[name] = round(time.perf_counter() - began, 4)
    return seconds


def alone(workload: str, engine: str) -> None:
    """Print seconds of imports and of first rounds, and the peak of memory in MB.

    Two clients play three rounds, of which the first has all that is done once; then all play.
    """
    imported = imports()

    import torch

    from benchmarks.contestants import player
    from benchmarks.measure import peak_memory
    from benchmarks.workloads import WORKLOADS

    torch.set_num_threads(1)
    work = WORKLOADS[workload]
    data = work.data()
    began = time.perf_counter()
    play = player(work, engine, data, cohorts=((0, 1), (0, 1), (0, 1), range(len(data))))
    seconds = []
    for _ in range(3):
        play()
        seconds.append(round(time.perf_counter() - began, 4))
        began = time.perf_counter()
    play()
    print(json.dumps({"imports": imported, "rounds": seconds, "memory MB": peak_memory()}))
