"""Lazy import of torch and NumPy.

Modules that name, describe and read experiments (algorithms, models, data sets, partitions,
reports) use `from undrift.later import np, torch`, so that the command line can list and check
them without the time that these imports take. Modules that train import torch and NumPy
themselves.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Later", "NDArray", "Tensor", "nn", "np", "torch"]


class Later:
    """A module that is imported at the first access to an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn
else:
    NDArray = Tensor = Any  # for annotations
    np = Later("numpy")
    torch = Later("torch")
    nn = Later("torch.nn")
