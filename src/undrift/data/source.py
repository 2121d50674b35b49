"""Samples as a data set delivers them, before they are shared out among clients."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from undrift.data.federated import Transform
from undrift.later import Tensor, torch


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """Training and test samples, and what is known about them.

    client_ids  the owner of each training sample, where the data have natural owners
    coarse      the coarse label of each fine label, where the data have both
    transform   what makes a batch for the model out of inputs as they are stored
    """

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: int
    client_ids: np.ndarray | None = None
    coarse: np.ndarray | None = None
    transform: Transform | None = None

    def load(self, seed: int) -> Source:
        """Itself: samples in memory may stand wherever a data set is named."""
        return self

    def __repr__(self) -> str:
        """Short, and another one for other samples: experiments are told apart by it."""
        parts: tuple[Tensor, ...]
        parts = (self.inputs, self.targets, self.test_inputs, self.test_targets)
        if self.client_ids is not None:
            parts += (torch.from_numpy(np.unique(self.client_ids, return_inverse=True)[1]),)
        return f"Source({len(self.targets)} samples, checksum {checksum(*parts)})"


@runtime_checkable
class DataSet(Protocol):
    """What samples are loaded from, such as `Digits()`."""

    def load(self, seed: int) -> Source:
        """The samples; only data that are made up depend on the seed."""
        ...


def checksum(*parts: Tensor | np.ndarray) -> str:
    """Of all bytes of tensors and arrays."""
    total = 0
    for part in parts:
        flat = torch.as_tensor(part).detach().cpu().contiguous().reshape(-1)
        total = zlib.crc32(flat.view(torch.uint8).numpy().data if len(flat) else b"", total)
    return f"{total:08x}"
