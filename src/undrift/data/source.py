"""Samples as a data set delivers them, before they are shared out among clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from undrift.data.federated import Transform


@dataclass(frozen=True, eq=False)
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


@runtime_checkable
class DataSet(Protocol):
    """What samples are loaded from, such as `Digits()`."""

    def load(self, seed: int) -> Source:
        """The samples; only data that are made up depend on the seed."""
        ...
