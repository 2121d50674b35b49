"""Data sets by name."""

from undrift.data.sources.digits import Digits
from undrift.data.sources.synthetic import Synthetic

SOURCES = {"digits": Digits, "synthetic": Synthetic}

__all__ = ["SOURCES", "Digits", "Synthetic"]
