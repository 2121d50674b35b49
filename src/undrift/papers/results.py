"""Results of trials: found in run directories, kept as one JSON line each beside the items."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from undrift.config import UndriftError
from undrift.experiment.experiment import settings_hash
from undrift.later import np
from undrift.papers import FULL, SMOKE
from undrift.papers.item import Cell, Item, Row
from undrift.report.read import Arm, Run, TrialRecord, read_run
from undrift.runs.identity import FACTS, stored_sessions
from undrift.runs.layout import RunFile
from undrift.system.files import replace_file, writing

POINTS = 50
"""most points of a curve that are kept"""


@dataclass(frozen=True)
class Result:
    """What is kept of a trial.

    row      label of the line in the paper's table
    trial    identity of the experiment with this trial alone
    values   measure → value, in stored units; none if the trial diverged
    failure  why it ended early
    reached  the last evaluated round
    best     best accuracy on the test data in any evaluated round
    x_norm   norm of the model at the first and the last evaluation
    samples  samples of the training clients, and of the test data
    machine  key of what affects rounding, in machines.json
    curves   "round" and the item's curves → up to POINTS values, rounded
    """

    cell: str
    scale: str
    row: str
    algorithm: str
    seed: int
    trial: str
    values: Mapping[str, float]
    rounds: int
    reached: int
    samples: tuple[int, int]
    machine: str
    failure: str | None = None
    best: float | None = None
    x_norm: tuple[float | None, float | None] = (None, None)
    flops: float = 0.0
    seconds: float = 0.0
    curves: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.cell, self.scale, self.row, self.algorithm, self.seed

    def line(self) -> str:
        kept = {k: v for k, v in asdict(self).items() if k != "curves" or v}
        return json.dumps(kept, ensure_ascii=False)

    @property
    def bits(self) -> dict[str, Any]:
        """All that is the same whenever the trial is run on the same machine, unrounded."""
        return {k: v for k, v in asdict(self).items() if k not in ("seconds", "machine", "curves")}


@dataclass(frozen=True)
class Found:
    """A trial in a run directory."""

    run: Run
    arm: Arm
    seed: int

    @property
    def done(self) -> bool:
        return self.arm.finished(self.seed) or self.seed in self.arm.failures


@dataclass
class Runs:
    """The run directories in a folder, by the identity of their trials."""

    folder: Path
    trials: dict[str, Found] = field(default_factory=dict)
    folders: dict[str, Path] = field(default_factory=dict)
    """hash of an experiment → its run directory"""

    def __post_init__(self) -> None:
        inside = sorted(
            {
                *self.folder.glob(f"*/{RunFile.EXPERIMENT}"),
                *self.folder.glob(f"*/*/{RunFile.EXPERIMENT}"),
            }
        )
        for path in inside:
            self.look(path.parent)

    def look(self, folder: Path) -> None:
        """Read a run directory, again if it was read before."""
        try:
            run = read_run(folder)
        except UndriftError:  # no run directory of ours, or one that is just being made
            return
        settings = {k: v for k, v in run.experiment.items() if k not in FACTS}
        self.folders[str(run.experiment.get("hash"))] = folder
        for arm in run.arms:
            for seed in arm.seeds:
                own = settings | {"algorithms": [arm.name], "seeds": [seed]}
                found = Found(run, arm, seed)
                trial = settings_hash(own)
                if (
                    trial not in self.trials
                    or found.done
                    or self.trials[trial].run.folder == folder
                ):
                    self.trials[trial] = found

    def done(self, trial: str) -> bool:
        return trial in self.trials and self.trials[trial].done


def collect(
    item: Item, cells: Iterable[Cell], scale: str, runs: Runs
) -> tuple[list[Result], dict[str, Any]]:
    """The results of all trials that are done, and the machines that they ran on."""
    results: list[Result] = []
    machines: dict[str, Any] = {}
    for cell in cells:
        for row, made, seed in cell.trials():
            trial = row.trial(made, seed)
            if runs.done(trial):
                found = runs.trials[trial]
                machine, facts = _machine(found.run.folder)
                machines[machine] = facts
                place = {"cell": cell.id, "scale": scale, "row": row.label, "trial": trial}
                results.append(_result(item, found, machine=machine, **place))
    return results, machines


def _result(item: Item, found: Found, **place: str) -> Result:
    arm, seed, about = found.arm, found.seed, found.run.experiment
    curve, failure = arm.curves.get(seed), arm.failures.get(seed)
    values = {}
    if curve is not None and failure is None:
        measured = {name: one.of(curve) for name, one in item.measures.items()}
        values = {name: value for name, value in measured.items() if math.isfinite(value)}
    norms = [] if curve is None else [_finite(x) for x in curve["x_norm"][[0, -1]]]
    return Result(
        **place,
        algorithm=arm.name,
        seed=seed,
        values=values,
        rounds=arm.rounds,
        reached=failure.round if failure else 0 if curve is None else int(curve.rounds[-1]),
        samples=(int(about["train_samples"]), int(about["test_samples"])),
        failure=failure.reason if failure else None,
        best=None if curve is None else _finite(arm.score.peak(curve)),
        x_norm=(norms[0], norms[1]) if norms else (None, None),
        flops=0.0 if curve is None else float(curve["flops"][-1]),
        seconds=0.0 if curve is None else round(float(curve["seconds"][-1]), 1),
        curves={} if curve is None or not item.curves else _curves(curve, item.curves),
    )


def _curves(curve: TrialRecord, metrics: Iterable[str]) -> dict[str, list[float | None]]:
    """Some of the evaluations, at equal distances, with the first and the last."""
    places = np.unique(np.linspace(0, len(curve.rounds) - 1, POINTS).round().astype(int))
    kept: dict[str, list[float | None]] = {"round": curve.rounds[places].tolist()}
    for metric in metrics:
        values = [_finite(value) for value in curve[metric][places]]
        kept[metric] = [None if value is None else float(f"{value:.4g}") for value in values]
    return kept


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _machine(folder: Path) -> tuple[str, dict[str, Any]]:
    """What affected rounding in the last session of a run, with a short key."""
    sessions = stored_sessions(folder)
    facts = sessions[-1].get("arithmetic", {}) if sessions else {}
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8], facts


def results_file(item: Item, folder: Path) -> Path:
    return folder / item.paper / "results" / f"{item.name}.jsonl"


def machines_file(item: Item, folder: Path) -> Path:
    return folder / item.paper / "results" / "machines.json"


def read_results(item: Item, folder: Path) -> list[Result]:
    """The results of an item in a folder of results."""
    path = results_file(item, folder)
    if not path.exists():
        return []
    known = {one.name for one in fields(Result)}
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            kept = {k: v for k, v in json.loads(line).items() if k in known}
            for pair in ("samples", "x_norm"):
                kept[pair] = tuple(kept[pair])
            found.append(Result(**kept))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UndriftError(
                f"{path}, line {number}: this is not a result; restore the file"
            ) from None
    return found


def read_machines(item: Item, folder: Path) -> dict[str, Any]:
    """Key of a machine → what affects rounding there."""
    path = machines_file(item, folder)
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found if isinstance(found, dict) else {}


def keep(item: Item, new: Iterable[Result], machines: Mapping[str, Any], folder: Path) -> int:
    """Add results to those in a folder, sorted; returns how many were new or other than before."""
    from filelock import FileLock

    path = results_file(item, folder)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    with FileLock(Path(tempfile.gettempdir()) / f"undrift-results-{name}.lock"):
        old = {one.key: one for one in current(item, read_results(item, folder))}
        changed = {one.key: one for one in new if not _same(one, old.get(one.key))}
        if changed:
            both = old | changed
            lines = [both[key].line() for key in sorted(both)]
            replace_file(path, ("\n".join(lines) + "\n").encode())
            known = read_machines(item, folder) | dict(machines)
            text = json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False)
            replace_file(machines_file(item, folder), f"{text}\n".encode())
    return len(changed)


def _same(new: Result, old: Result | None) -> bool:
    """Whether a result is there already; how long it took does not count."""
    return old is not None and replace(new, seconds=old.seconds) == old


def current(item: Item, results: Iterable[Result]) -> Iterator[Result]:
    """The results whose trials are those of the item's file as it is now."""
    rows: dict[str, dict[tuple[str, str], Row]] = {}
    for one in results:
        if one.scale not in (FULL, SMOKE, *item.scales):
            continue
        if one.scale not in rows:
            cells = item.cells(one.scale)
            rows[one.scale] = {(cell.id, row.label): row for cell in cells for row in cell.rows}
        row = rows[one.scale].get((one.cell, one.row))
        made = [] if row is None else [m for m in row.algorithms if repr(m) == one.algorithm]
        if row and made and row.trial(made[0], one.seed) == one.trial:
            yield one
