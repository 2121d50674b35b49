"""Randomness as a function of (seed, purpose, round, client), never of a generator's history.

So a resumed run, any number of workers and every algorithm under comparison see the same
partitions, cohorts and batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode


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


class Keyed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside the block, random tensors of this thread come from the generator given."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator
        self.drew = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or the first operator imports torch's compiler, which takes a second

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if draws(op):
            self.drew = True
            kwargs = kwargs | {"generator": self.generator}
        return op(*args, **kwargs)


@cache
def draws(op: Any) -> bool:
    """Whether an operator of torch draws random numbers."""
    return any(argument.name == "generator" for argument in op._schema.arguments)
