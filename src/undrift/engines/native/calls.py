"""What a recording is made of: the operators that ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor


class Unsuitable(Exception):
    """Why a step cannot be recorded; it runs in Python then."""


@dataclass
class Call:
    """One operator that ran: what it was given and what came out."""

    op: Any
    args: list[Any]
    outs: list[Tensor | None]

    @property
    def name(self) -> str:
        return str(self.op.overloadpacket.__name__)

    @property
    def tensors(self) -> list[Tensor]:
        return [t for arg in self.args for t in tensors(arg)]

    @property
    def written(self) -> list[Tensor]:
        """Arguments that it changes in place."""
        return [
            t
            for arg, given in zip(self.op._schema.arguments, self.args, strict=True)
            if arg.alias_info is not None and arg.alias_info.is_write
            for t in tensors(given)
        ]


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in an argument."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from tensors(one)


def memory(t: Tensor) -> int:
    """Which memory a tensor is a window on."""
    try:
        return int(t.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        raise Unsuitable(f"a {t.layout} tensor has no plain memory") from None
