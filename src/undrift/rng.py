"""Randomness as a function of (seed, purpose, round, client), never of a generator's history.

Hence partitions, cohorts and batches are the same in a resumed run, with any number of workers, and
for all algorithms of a comparison.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from undrift.later import np, torch


def stream(seed: int, purpose: str, *where: int) -> np.random.Generator:
    """A NumPy generator for one purpose; `where` is, for example, (round, client)."""
    words = (seed, zlib.crc32(purpose.encode()), *where)
    return np.random.Generator(np.random.PCG64(words))


def number(seed: int, purpose: str, *where: int) -> int:
    """A seed for torch's generators, in [0, 2^63)."""
    return int(stream(seed, purpose, *where).integers(2**63))


@contextmanager
def torch_stream(seed: int, purpose: str, *where: int) -> Iterator[None]:
    """Inside the block, torch's global generator is seeded for this purpose; restored after it."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(number(seed, purpose, *where))
        yield
