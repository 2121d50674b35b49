"""Redirects torch's random operators to a given generator."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Keyed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Inside the block, random operators of this thread draw from the given generator."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator
        self.drew = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch's compiler (about 1 s)

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
