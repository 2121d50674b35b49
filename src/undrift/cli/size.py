"""Sizes of run directories for people."""

from __future__ import annotations

import shlex
from pathlib import Path

from undrift.report.units import brief, prefix
from undrift.runs import disk
from undrift.runs.layout import RunFile

LARGE = 100e6
"""bytes from which on a run says its size"""


def said(size: float) -> str:
    """Bytes as people read them: 12.3 MB."""
    unit, letter = prefix(size)
    return f"{brief(size / unit) if unit > 1 else round(size)} {letter}B"


def advice(run: Path) -> str | None:
    """The size of a large run, and how to make it smaller."""
    total, states = disk.size(run), disk.size(run / RunFile.CHECKPOINTS)
    if total <= LARGE:
        return None
    command = shlex.join(["undrift", "prune", "--all", str(run)])
    return f"size: {said(total)}, of which checkpoints {said(states)}; remove them with: {command}"
