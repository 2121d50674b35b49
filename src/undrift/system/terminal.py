"""Whether output can be redrawn in place."""

from __future__ import annotations

import os

from rich.console import Console


def redraws(console: Console) -> bool:
    """Whether a console can move its cursor back to redraw a progress bar.

    A notebook gives commands a pseudo-terminal, but keeps every version of a bar as a new line.
    """
    return console.is_interactive and console.file.isatty() and not _in_notebook()


def _in_notebook() -> bool:
    """Whether a Jupyter kernel started this process; VS Code's kernels set MPLBACKEND alone."""
    return "JPY_PARENT_PID" in os.environ or "inline" in os.environ.get("MPLBACKEND", "")
