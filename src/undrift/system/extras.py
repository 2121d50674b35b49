"""Optional packages, imported where they are used."""

from __future__ import annotations

import importlib
from typing import Any

from undrift.config import UndriftError


def needed(purpose: object, *packages: str) -> Any:
    """Import the first of these packages that is installed; `purpose` begins the error."""
    for package in packages:
        try:
            return importlib.import_module(package)
        except ImportError:
            continue
    ways = " or ".join(f"`pip install {package.partition('.')[0]}`" for package in packages)
    raise UndriftError(f"{purpose}: needs a package that is not installed; {ways}")
