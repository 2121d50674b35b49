"""`undrift verify`: whether runs are still as they were written."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from undrift.config import UndriftError

if TYPE_CHECKING:
    from undrift.runs.verify import Verified


def verify(*runs: Path, json_: Annotated[bool, Parameter("--json")] = False) -> None:
    """Check that nothing in runs was damaged: settings, rows, failures, models and checkpoints.

    Example: undrift verify runs/*

    One line tells what is wrong with a file and what mends it; then the exit code is 1. Files are
    only read. A run that is going on is left alone.

    Parameters
    ----------
    runs
        Run directories, `undrift ls` lists them; of a study or sweep, all its runs.
    json_
        Print JSON.
    """
    if not runs:
        raise UndriftError("give at least one run directory; `undrift ls` lists them")
    from undrift.runs.disk import within
    from undrift.runs.verify import verify as look

    found = [look(one) for run in runs for one in within(run)]
    if json_:
        sys.stdout.write(json.dumps([_facts(one) for one in found], indent=1) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for one in found for line in _lines(one))
    if any(one.problems for one in found):
        sys.exit(1)


def _facts(found: Verified) -> dict[str, object]:
    return {
        "run": str(found.run),
        "state": found.state,
        "checked": found.checked,
        "checksums": not found.unsummed,
        "problems": [asdict(one) for one in found.problems],
    }


def _lines(found: Verified) -> list[str]:
    if found.process is not None:
        return [f"{found.run}: process {found.process} is running it; not checked"]
    if found.problems:
        return [f"{found.run / p.file}: {p.problem}; {p.mend}" for p in found.problems]
    counts = ", ".join(f"{number} {what}" for what, number in found.checked.items())
    lacking = "; no checksums of rows and models, `undrift resume` takes them"
    return [f"{found.run}: sound ({counts}){lacking if found.unsummed else ''}"]
