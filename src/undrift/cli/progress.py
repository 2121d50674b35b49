"""What a run shows of itself: live bars on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from undrift.measure.quantities import QUANTITIES

if TYPE_CHECKING:
    from undrift.experiment.experiment import Experiment
    from undrift.runs.runner import Event

RESULTS, NORMS = ("accuracy", "loss"), ("x_norm", "h_norm")
"""quantities that a bar shows: the first result that there is, and the norms if there is room"""

WIDE = 110
"""columns of a terminal that has room for everything"""

REFRESH = 0.1
"""seconds between two updates of a bar; rounds may be much shorter"""


class Rate(ProgressColumn):
    """Rounds done in a second."""

    def render(self, task: Task) -> Text:
        return Text(
            "" if task.speed is None else f"{task.speed:.3g}/s", style="progress.data.speed"
        )


def show_progress(experiment: Experiment, events: Iterable[Event]) -> None:
    """Show the events of a run as they come."""
    from undrift.experiment.registry import labels

    console = Console(highlight=False)
    wide = console.width >= WIDE
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24 if wide else 8),
        MofNCompleteColumn(),
        Rate(),
        TextColumn("{task.fields[measured]}", markup=False),
        TimeRemainingColumn(),
    )
    live = console.is_terminal
    with Progress(*columns, console=console, disable=not live) as progress:
        total = experiment.rounds * len(experiment.seeds)
        bars = {
            label: progress.add_task(label, total=total, measured="", start=False)
            for label in labels(experiment.algorithms)
        }
        measured, shown = "", 0.0
        for event in events:
            done = event.round
            if event.label:
                done += experiment.rounds * experiment.seeds.index(event.seed)
            match event.kind:
                case "start":
                    console.print(f"engine: {event.note}", markup=False)
                case "note":
                    console.print(event.note, style="yellow", markup=False, soft_wrap=True)
                case "done":
                    progress.update(bars[event.label], completed=done)
                case "begin":
                    measured = ""
                    progress.update(bars[event.label], completed=done)
                    progress.start_task(bars[event.label])
                    if event.round and not live:
                        where = f"{event.label}, seed {event.seed}"
                        console.print(f"{where}: resumes after round {event.round}", markup=False)
                case "row":
                    measured = _told(event.row or {}, norms=wide or not live)
                    progress.update(bars[event.label], completed=done, measured=measured)
                case "round" if time.monotonic() - shown > REFRESH:
                    shown = time.monotonic()
                    progress.update(bars[event.label], completed=done)
                case "end":
                    says = f"ended in round {event.round}: {event.note}" if event.note else measured
                    ends = experiment.rounds * (experiment.seeds.index(event.seed) + 1)
                    progress.update(bars[event.label], completed=ends, measured=says)
                    if not live:
                        console.print(f"{event.label}, seed {event.seed}: {says}", markup=False)


def _told(row: dict[str, Any], norms: bool) -> str:
    """The last evaluation: accuracy, or the loss where there is none, and perhaps norms."""
    known = {name: value for name, value in row.items() if value is not None}
    result = [name for name in RESULTS if name in known][:1]
    names = [*result, *(NORMS if norms else ())]
    return "  ".join(QUANTITIES[name].labelled(known[name]) for name in names if name in known)
