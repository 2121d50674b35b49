"""The real files that tests may use: in UNDRIFT_TEST_DATA, or beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(
    os.environ.get("UNDRIFT_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data"
).resolve()


def real(*names: str) -> Path:
    """The folder with the real files; the test is skipped where one of them is missing."""
    for name in names:
        if not (FOLDER / name).exists():
            pytest.skip(f"{FOLDER / name} is not there; UNDRIFT_TEST_DATA names the data folder")
    return FOLDER
