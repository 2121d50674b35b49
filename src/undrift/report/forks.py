"""Forks: the state of another run that a run started from, and what that had cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undrift.config import UndriftError
from undrift.report.settings import contrast, read_call
from undrift.runs.layout import RunFile, origin_file
from undrift.runs.reading import is_number, is_whole, read_experiment
from undrift.runs.tensor_file import read_metadata
from undrift.system.files import Damaged


@dataclass(frozen=True)
class Fork:
    """Where a forked run started.

    run        hash or name of the other run
    algorithm  of the other run whose state was taken over, and after which round
    fresh      whether the model alone was taken over
    spent      seed → bytes and FLOPs up to there, which the rows of the fork include
    """

    run: str
    algorithm: str
    round: int
    fresh: bool = False
    spent: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def said(self, *algorithms: str) -> str:
        """What changed, and from where."""
        old, *new = contrast([self.algorithm, *algorithms])
        change = old if algorithms == (self.algorithm,) else f"{old} → {', '.join(new)}"
        fresh = ", the model alone" if self.fresh else ""
        return f"fork of {self.run} after round {self.round}{fresh}: {change}"


def read_fork(folder: Path, experiment: Mapping[str, Any], seeds: Sequence[int]) -> Fork | None:
    """The fork that the settings of a run tell of; None if it is none."""
    call = read_call(experiment.get("origin"), "origin")
    told = dict(call.parameters) if call else {}
    run, algorithm, after = (told.get(name) for name in ("run", "algorithm", "round"))
    if not isinstance(run, str) or not isinstance(algorithm, str) or not is_whole(after):
        return None
    spent = {seed: costs for seed in seeds if (costs := _spent(origin_file(folder, seed)))}
    return Fork(run, algorithm, after, bool(told.get("fresh")), spent)


def beside(folder: Path) -> dict[str, str]:
    """Hash → name of the run directories with the same parent."""
    called = {}
    with suppress(OSError):
        for path in sorted(folder.resolve().parent.iterdir()):
            with suppress(OSError, UndriftError):
                experiment = read_experiment(path / RunFile.EXPERIMENT)
                called[str(experiment.get("hash"))] = path.name
    return called


def _spent(path: Path) -> dict[str, float]:
    """Costs up to a state; none if the file does not tell."""
    with suppress(Damaged, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        notes = json.loads(read_metadata(path)["undrift"])["notes"]
        costs = {"bytes": notes["bytes_down"] + notes["bytes_up"], "flops": notes["flops"]}
        if all(map(is_number, costs.values())):
            return costs
    return {}
