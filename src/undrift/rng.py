"""Randomness as a function of (seed, purpose, round, client), never of a generator's history.

So a resumed run, any number of workers and every algorithm under comparison see the same
partitions, cohorts and batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from undrift.later import torch


def stream(seed: int, purpose: str, *where: int) -> np.random.Generator:
    """A NumPy generator for one purpose at one place."""
    words = (seed, zlib.crc32(purpose.encode()), *where)
    return np.random.Generator(np.random.PCG64(words))


def number(seed: int, purpose: str, *where: int) -> int:
    """A seed for torch's generators, for one purpose at one place."""
    return int(stream(seed, purpose, *where).integers(2**63))


@contextmanager
def torch_stream(seed: int, purpose: str, *where: int) -> Iterator[None]:
    """Inside the block, torch's global generator is the one for this purpose and place."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(number(seed, purpose, *where))
        yield
