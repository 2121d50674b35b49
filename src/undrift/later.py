"""Lazy import of torch.

Modules that name and describe an experiment (algorithms, models, data sets, partitions) use
`from undrift.later import torch`, so that the command line can list and check them without the
seconds that `import torch` takes. Modules that train import torch itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class Later:
    """A module that is imported at the first access to an attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
    from torch import nn as nn
else:
    Tensor = Any  # for annotations
    torch = Later("torch")
    nn = Later("torch.nn")
