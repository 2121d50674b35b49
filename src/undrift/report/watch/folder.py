"""The runs in a folder: listed at every request, read only when their files have changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undrift.config import UndriftError, shortened
from undrift.report.labels import descriptions
from undrift.report.merge import merge, renamed, traced
from undrift.report.page.panels import panel_data
from undrift.report.page.parts import render_parts
from undrift.report.read import Run, read_run
from undrift.report.summary import best_peak, summarise
from undrift.report.text import printable
from undrift.report.units import span
from undrift.runs.columns import MetricsReader
from undrift.runs.layout import RunFile, is_study, study_runs
from undrift.runs.reading import FILES, RunState, is_folder, run_state
from undrift.system.lock import holder

Stamp = tuple[tuple[int, int] | None, ...]
"""modification time and size of each file; None for one that does not exist"""


@dataclass(frozen=True)
class Seen:
    """A run directory as it was read: the run, or an error.

    metrics  the reader of its rows, which continues where it stopped
    """

    stamp: Stamp
    metrics: MetricsReader
    run: Run | None
    error: str


@dataclass(frozen=True)
class Entry:
    """A run in the list.

    name     name of its directory, by which the page requests it
    process  id of the process that is running it, if any
    """

    name: str
    seen: Seen
    process: int | None

    @property
    def version(self) -> str:
        """Changes when there is something new to show."""
        return " ".join(f"{one[0]:x}.{one[1]:x}" if one else "-" for one in self.seen.stamp)

    @property
    def modified(self) -> float:
        """When settings or results were last written, in seconds since 1970."""
        return max(one[0] for one in self.seen.stamp[:2] if one) / 1e9

    @property
    def begun(self) -> float:
        """When its settings were written, which happens once."""
        settings = self.seen.stamp[0]
        return settings[0] / 1e9 if settings else 0.0

    @property
    def state(self) -> RunState:
        run = self.seen.run
        return run_state(self.process, None if run is None else run.finished)

    def facts(self) -> dict[str, Any]:
        """Its entry in the list, for JSON."""
        said = {"name": self.name, "state": self.state, "version": self.version}
        common = said | {"modified": self.modified, "process": self.process}
        run = self.seen.run
        if run is None:
            return common | {"error": self.seen.error}
        return common | {
            "data": str(run.experiment.get("data", "")),
            "partition": str(run.experiment.get("partition", "")),
            "algorithms": [arm.label for arm in run.arms],
            "done": run.done,
            "rounds": run.rounds,
            "trials": f"{run.trials_done} of {run.trials} trials",
            "left": _left(run) if self.process is not None else "",
            "best": _best(run),
        }


def _left(run: Run) -> str:
    """The time that a run still takes, if it can be told."""
    seconds = run.seconds_left
    return "" if seconds is None else f"{span(seconds)} left"


def _best(run: Run) -> str | None:
    """The best result with its unit or name."""
    best = best_peak(run)
    return None if best is None else run.score.said(run.score.number(best))


class Folder:
    """A folder that holds run directories, or is one itself, or that of a study.

    Nothing outside of it is read: links that lead out of it are ignored.
    """

    def __init__(self, path: Path) -> None:
        if not is_folder(path):
            shown = shortened(str(path))
            raise UndriftError(f"{shown} is not a folder; give the one that holds your runs")
        self.path = path.resolve()
        self._seen: dict[Path, Seen] = {}
        self._reading = threading.Lock()

    def entries(self) -> list[Entry]:
        """All runs, the latest first."""
        with self._reading:
            found = dict(self._find())
            self._seen = {path: self._look(path, stamp) for path, stamp in found.items()}
            entries = [
                Entry(printable(path.name), seen, self._holder(path))
                for path, seen in self._seen.items()
            ]
        return sorted(entries, key=lambda entry: (-entry.begun, entry.name))

    def facts(self) -> list[dict[str, Any]]:
        """All runs, the latest first, for JSON."""
        entries = self.entries()
        runs = {entry.name: entry.seen.run for entry in entries if entry.seen.run is not None}
        called = {str(run.experiment.get("hash")): name for name, run in runs.items()}
        said = descriptions([traced(run, called) for run in runs.values()])
        about = dict(zip(runs, said, strict=True))
        return [entry.facts() | {"about": about.get(entry.name, "")} for entry in entries]

    def view(self, names: Sequence[str]) -> dict[str, Any] | None:
        """Parts of the page and data of its plots; None if there is nothing to show."""
        run = self.together(names)
        if run is None:
            return None
        return {"parts": render_parts(run, summarise(run)), "data": panel_data(run)}

    def together(self, names: Sequence[str]) -> Run | None:
        """The named runs merged, in this order, without those that have no results yet."""
        known = {entry.name: entry.seen.run for entry in self.entries()}
        runs = {name: known.get(name) for name in names}
        begun = [renamed(run, name) for name, run in runs.items() if run is not None and run.begun]
        return merge(begun, strict=False) if begun else None

    def _find(self) -> Iterator[tuple[Path, Stamp]]:
        """Run directories with the stamps of their files."""
        try:
            study = is_study(self.path)
            within = study_runs(self.path) if study else sorted(self.path.iterdir())
        except OSError:  # removed, perhaps for a while
            within = []
        for path in (self.path, *within):
            stamp = tuple(self._stamp(path / name) for name in FILES)
            if any(stamp[:2]):
                yield path, stamp

    def _stamp(self, file: Path) -> tuple[int, int] | None:
        """Modification time and size; None for what is not a file within the folder."""
        try:
            inside = file.resolve().is_relative_to(self.path)
            facts = file.stat()
        except (OSError, RuntimeError):  # RuntimeError: a cycle of links
            return None
        return (facts.st_mtime_ns, facts.st_size) if inside and file.is_file() else None

    def _holder(self, path: Path) -> int | None:
        return holder(path) if self._stamp(path / ".pid") else None

    def _look(self, path: Path, stamp: Stamp) -> Seen:
        seen = self._seen.get(path)
        if seen is not None and seen.stamp == stamp:
            return seen
        metrics = MetricsReader(path / RunFile.METRICS) if seen is None else seen.metrics
        try:
            for name, there in zip(FILES, stamp, strict=True):
                if not there and (path / name).is_symlink():
                    raise UndriftError(f"{name} is a link that leads out of the folder of the runs")
            return Seen(stamp, metrics, read_run(path, metrics), "")
        except UndriftError as error:
            return Seen(stamp, metrics, None, str(error))
