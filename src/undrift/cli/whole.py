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


Whole = Annotated[int, Parameter(converter=_read)]
"""An option that takes a whole number, where cyclopts would round 1.5 to 2."""
