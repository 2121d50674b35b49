"""Whole numbers on the command line."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, Token

from undrift.config import shortened


def _read(kind: type[int], tokens: Sequence[Token]) -> int:
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"must be a whole number, not {shortened(tokens[0].value)}") from None


def _at_least_1(kind: type[int], tokens: Sequence[Token]) -> int:
    if (number := _read(kind, tokens)) < 1:
        raise ValueError(f"must be 1 or more, not {number}")
    return number


Whole = Annotated[int, Parameter(converter=_read)]
"""An option that takes a whole number, where cyclopts would round 1.5 to 2."""

Count = Annotated[int, Parameter(converter=_at_least_1)]
"""The same, of at least 1."""
