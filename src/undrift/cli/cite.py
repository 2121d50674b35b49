"""`undrift cite`: what to cite for a run."""

from __future__ import annotations

import sys
from pathlib import Path

from undrift.report import read_run
from undrift.report.cite import cite as bibtex


def cite(run: Path) -> None:
    """Print BibTeX of undrift and of all that a run used: algorithms, parts, data, model.

    Example: undrift cite runs/3f2a90c1d7be > undrift.bib

    Parameters
    ----------
    run
        Run directory; `undrift ls` lists them.
    """
    found = read_run(run)
    said = [found.experiment.get(key) for key in ("data", "partition", "model", "sampler")]
    texts = [*(arm.name for arm in found.arms), *(str(text) for text in said if text)]
    sys.stdout.write(bibtex(texts, str(found.experiment.get("version", ""))))
