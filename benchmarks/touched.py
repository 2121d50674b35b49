"""The store of client memory with more and more rows, beside a plain file of the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import circumstances, fresh, peak_memory
from benchmarks.workloads import WORKLOADS
from undrift.core import Struct
from undrift.training.memory import Store

BUDGET = 6 * 10**8
"""bytes of rows that the store may keep in memory: the whole process takes less than 1 GB then"""

READ = 1000
"""rows that are read and written again, at random, when all have been written"""


def measure_touched(most: int, folder: Path | None) -> dict[str, Any]:
    """Rows of AdaBest's memory, as many as asked for or as the disk has room for."""
    wanted = [10**k for k in range(2, 6) if 10**k <= most]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        free = shutil.disk_usage(place).free
        fit = [count for count in wanted if 1.5 * count * row_bytes() < free]
        code = "from benchmarks.touched import alone; alone({!r}, {!r})"
        rows = [{"rows": count, **fresh(code.format(count, place))} for count in fit]
    left_out = "" if fit == wanted else f"no room for more: {free / 1e9:.0f} GB free"
    return {
        **circumstances(),
        "bytes in a row": row_bytes(),
        "budget": BUDGET,
        "left out": left_out,
        "rows": rows,
    }


def row_bytes() -> int:
    """The size of what AdaBest's clients remember in W1."""
    return 4 * sum(p.numel() for p in WORKLOADS["W1"].textbook().parameters())


def alone(count: int, place: str) -> None:
    """Print milliseconds a row of the store and of a plain file, and the peak of memory in MB."""
    torch.set_num_threads(1)
    some = np.random.default_rng(0).integers(count, size=READ).tolist()
    h = torch.randn(row_bytes() // 4)
    folder = Path(place, "store")
    with Store(folder, BUDGET) as store:
        ours = _times(
            count,
            some,
            lambda i: store.put(i, Struct(h=h + i, t=i)),  # a tensor of its own for every row
            store.flush,
            store.__getitem__,
        )
    memory = peak_memory()
    shutil.rmtree(folder)
    with Path(place, "plain").open("w+b", buffering=0) as file:
        number, size = file.fileno(), row_bytes()
        plain = _times(
            count,
            some,
            lambda i: os.pwrite(number, (h + i).numpy(), i * size),
            lambda: os.fsync(number),
            lambda i: os.pread(number, size, i * size),
        )
    Path(file.name).unlink()
    print(json.dumps({"store ms": ours, "plain ms": plain, "memory MB": memory}))


def _times(
    count: int,
    some: Iterable[int],
    write: Callable[[int], object],
    flush: Callable[[], object],
    read: Callable[[int], object],
) -> dict[str, float]:
    """Milliseconds a row: of the first writing until it is safe, and of read and write later."""
    began = time.perf_counter()
    for i in range(count):
        write(i)
    flush()
    written = time.perf_counter()
    for i in some:
        read(i)
        write(i)
    flush()
    again = time.perf_counter()
    first, later = (written - began) / count, (again - written) / READ
    return {"write": round(1000 * first, 4), "read and write": round(1000 * later, 4)}
