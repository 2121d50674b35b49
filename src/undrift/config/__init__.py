"""Validated settings that print as the text that makes them, and user errors."""

from undrift.config.errors import UndriftError, at, shortened, unknown
from undrift.config.fields import (
    Config,
    Range,
    choice,
    flag,
    member,
    real,
    text,
    whole,
    wholes,
)

__all__ = [
    "Config",
    "Range",
    "UndriftError",
    "at",
    "choice",
    "flag",
    "member",
    "real",
    "shortened",
    "text",
    "unknown",
    "whole",
    "wholes",
]
