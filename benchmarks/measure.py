"""Measuring: contestants in turn, the machine's own limit, and processes of their own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import undrift
from benchmarks.workloads import Workload

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"

ENOUGH = 5.0
"""Seconds for which short contestants are measured again and again."""

SIDE, PRODUCTS = 1024, 4
"""The matrices of the sgemm peak, and their products in one measurement."""


def interleave(
    contestants: Mapping[str, Callable[[], object]], repetitions: int, title: str
) -> dict[str, list[float]]:
    """Seconds of all contestants, one after the other in every repetition."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(title, total=repetitions)
        started = time.perf_counter()
        while not progress.finished or time.perf_counter() - started < ENOUGH:
            for name, contestant in contestants.items():
                began = time.perf_counter()
                contestant()
                seconds[name].append(round(time.perf_counter() - began, 6))
            progress.advance(bar)
    return seconds


class Sgemm:
    """Products of square matrices, one thread to each of some workers at the same time."""

    def __init__(self, workers: int) -> None:
        self.flop = 2 * SIDE**3 * PRODUCTS * workers
        self._pool = ThreadPoolExecutor(workers, initializer=lambda: torch.set_num_threads(1))
        self._matrices = torch.randn(workers, 3, SIDE, SIDE)

    def __call__(self) -> None:
        list(self._pool.map(self._multiply, self._matrices))

    def _multiply(self, matrices: torch.Tensor) -> None:
        for _ in range(PRODUCTS):
            torch.mm(matrices[0], matrices[1], out=matrices[2])


def count_flop(work: Workload) -> float:
    """Floating point operations of the products and convolutions in a round.

    Counted on one step; attention is counted as the products that it stands for.
    """
    model, size = work.textbook(), work.local.batch_size
    inputs, targets = work.sample(size)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(model(inputs), targets).backward()
    return counter.get_total_flops() / size * work.samples * work.epochs * work.clients


def fresh(code: str) -> Any:
    """The JSON in the last line that code prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, check=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def peak_memory() -> float:
    """The most memory this process ever had in use, in MB (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return round(int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6, 1)


def circumstances() -> dict[str, object]:
    """Date, machine and versions."""
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": names[0] if names else platform.machine(),
            "vectors": torch.backends.cpu.get_cpu_capability(),
            "cores": len(os.sched_getaffinity(0)),
            "memory GB": round(memory / 1e9, 1),
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "undrift": undrift.__version__,
        },
    }


def store_results(name: str, results: Mapping[str, Any]) -> None:
    """Replace what was measured in a file of results; what was not stays."""
    path = RESULTS / f"{name}.json"
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(load_results(name) | dict(results), indent=1) + "\n")


def load_results(name: str) -> dict[str, Any]:
    """A file of results; nothing if it has not been written yet."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
