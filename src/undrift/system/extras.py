"""Packages that only some purposes need, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any

from undrift.config import UndriftError


def require(package: str, extra: str, purpose: object) -> Any:
    """A package as a module; `extra` of undrift installs it, "" if none does."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise lacking(package, extra, purpose) from None


def lacking(package: str, extra: str, purpose: object) -> UndriftError:
    """The error for a package that is not installed."""
    clone = f'pip install ".[{extra}]" in a clone of undrift, or ' if extra else ""
    return UndriftError(
        f"{purpose} needs {package}, which is not installed; install it with: {clone}"
        f'pip install "{package}"'
    )
