"""torch, imported when it is first used.

What names and describes an experiment (algorithms, models, data sets, partitions) says
`from undrift.later import torch`, so that the command line can list, check and refuse without the
seconds that `import torch` takes. What trains imports torch itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class Later:
    """Stands for a module until somebody asks for what is in it."""

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
