"""Progress of a run: one bar on a terminal, lines of text elsewhere."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, track
from rich.table import Column

from undrift.measure.quantities import QUANTITIES
from undrift.system.terminal import redraws

if TYPE_CHECKING:
    from undrift.experiment.experiment import Experiment
    from undrift.runs.runner import Event

Clock = Callable[[], float]
Trial = tuple[str, int]

RESULTS, NORMS = ("accuracy", "loss"), ("x_norm", "h_norm")
"""quantities that are shown: the first result that there is, and the norms if there is room"""

WIDE, REST = 110, 66
"""columns of a terminal that has room for the norms; columns of the bar without the label"""


class Pace:
    """Rounds left of each trial, the speed of each algorithm in this session, and the time left.

    An algorithm that has not run yet is taken to be as fast as the others.
    """

    def __init__(self, experiment: Experiment, clock: Clock) -> None:
        from undrift.experiment.registry import labels

        self.rounds, self.clock = experiment.rounds, clock
        first = experiment.origin.round if experiment.origin else 0
        self.left = {
            (label, seed): self.rounds - first
            for seed in experiment.seeds
            for label in labels(experiment.algorithms)
        }
        self.total = sum(self.left.values())
        self._trained: dict[str, int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)

    def begin(self, label: str, seed: int, round: int) -> None:
        """A trial starts after a round."""
        self._trial, self._since = (label, seed), self.clock()
        self.left[self._trial] = self.rounds - round

    def reach(self, round: int) -> None:
        """The trial has done a round."""
        now, left, label = self.clock(), self.rounds - round, self._trial[0]
        self._trained[label] += self.left[self._trial] - left
        self._seconds[label] += now - self._since
        self.left[self._trial], self._since = left, now

    @property
    def done(self) -> int:
        """Rounds of all trials that have been run or need not be."""
        return self.total - sum(self.left.values())

    @property
    def rate(self) -> str:
        """Rounds per second of the current algorithm; "" if not known yet."""
        seconds = self._seconds_per_round(self._trial[0])
        if not seconds:
            return ""
        return f"{1 / seconds:,.0f}/s" if seconds < 0.01 else f"{1 / seconds:.3g}/s"

    def time_left(self, *trials: Trial) -> str:
        """Time left of some trials, of all if none is given; "" if not known yet."""
        seconds = sum(
            self.left[trial] * self._seconds_per_round(trial[0]) for trial in trials or self.left
        )
        return f"{_time(seconds)} left" if seconds else ""

    def _seconds_per_round(self, label: str) -> float:
        if self._trained[label]:
            return self._seconds[label] / self._trained[label]
        return sum(self._seconds.values()) / max(sum(self._trained.values()), 1)


class Lines:
    """Progress as lines of text, for logs and notebooks."""

    every = 60.0
    """seconds between two updates, at least; rounds may be much shorter"""

    def __init__(self, console: Console, pace: Pace) -> None:
        self.console, self.pace, self.norms = console, pace, True

    def say(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style, markup=False, soft_wrap=True)

    def update(self, event: Event, measured: str) -> None:
        """Show where the run is after a round."""
        pace, left = self.pace, self.pace.time_left((event.label, event.seed))
        here = _joined(f"round {event.round}/{pace.rounds}", measured, pace.rate, left)
        self.say(f"{_name(event)}: {here}; all: {pace.time_left() or 'done'}")

    def ended(self, event: Event, result: str) -> None:
        """Show the result of a trial that has ended."""
        pace, left = self.pace, list(self.pace.left.values())
        done = f"{left.count(0)} of {len(left)} trials done"
        self.say(f"{_name(event)}: {_joined(result, pace.rate, done, pace.time_left())}")


class Bar(Lines):
    """Progress as one bar, below a line for each trial that has ended."""

    every = 0.1

    def __init__(self, console: Console, pace: Pace, progress: Progress) -> None:
        super().__init__(console, pace)
        self.norms, self.progress = console.width >= WIDE, progress
        self.bar = progress.add_task("", total=pace.total, seed="", rest="")

    def update(self, event: Event, measured: str) -> None:
        rest = _joined(self.pace.rate, measured, self.pace.time_left(), between="  ")
        self.progress.update(
            self.bar,
            description=event.label,
            completed=self.pace.done,
            seed=f"seed {event.seed}",
            rest=rest,
            refresh=True,
        )

    def ended(self, event: Event, result: str) -> None:
        self.update(event, "")
        self.say(f"{_name(event)}: {result}")


def show_progress(
    experiment: Experiment,
    events: Iterable[Event],
    folder: Path,
    console: Console | None = None,
    clock: Clock = time.monotonic,
) -> None:
    """Show the events of a run as they come; `folder` has the results of earlier sessions."""
    console = console or Console(highlight=False)
    pace = Pace(experiment, clock)
    if not redraws(console):
        _follow(events, folder, pace, Lines(console, pace))
        return
    longest, room = max(len(label) for label, _ in pace.left), max(console.width - REST, 8)
    label = Column(no_wrap=True, width=min(longest, room))
    columns = (
        TextColumn("{task.description}", markup=False, table_column=label),
        TextColumn("{task.fields[seed]}"),
        BarColumn(bar_width=24 if console.width >= WIDE else 8),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rest]}", markup=False),
    )
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        _follow(events, folder, pace, Bar(console, pace, progress))


def _follow(events: Iterable[Event], folder: Path, pace: Pace, shown: Lines) -> None:
    measured, last = "", pace.clock()
    before: dict[Trial, str] = {}
    for event in events:
        match event.kind:
            case "start":
                shown.say(f"engine: {event.note}")
            case "note":
                shown.say(str(event.note), style="yellow")
            case "done":
                pace.left[event.label, event.seed] = 0
                before = before or _results(folder, shown.norms)
                result = before[event.algorithm, event.seed]
                shown.say(f"{_name(event)}: {result} (done before)")
            case "begin":
                measured = ""
                pace.begin(event.label, event.seed, event.round)
                if event.round:
                    shown.say(f"{_name(event)}: resumes after round {event.round}")
            case "row":
                measured = _told(event.row or {}, shown.norms)
            case "round":
                pace.reach(event.round)
                if pace.clock() - last >= shown.every:
                    last = pace.clock()
                    shown.update(event, measured)
            case "end":
                last = pace.clock()
                pace.left[event.label, event.seed] = 0
                result = _joined(measured, _stopped(event.round, event.stopped))
                shown.ended(event, _failed(event.round, event.note) if event.note else result)


def show_steps(
    steps: Iterable[object],
    what: str,
    total: int,
    console: Console,
    clock: Clock = time.monotonic,
) -> None:
    """Take steps, at most `total`, and show how many: on a terminal as a bar, else as lines."""
    bar = redraws(console)
    start = last = clock()
    for done, _ in enumerate(track(steps, what, total, console=console, disable=not bar), 1):
        if not bar and clock() - last >= Lines.every:
            last = clock()
            left = _time((last - start) / done * (total - done))
            console.print(f"{what}: {done}/{total}, {left} left", highlight=False)


def _results(folder: Path, norms: bool) -> dict[Trial, str]:
    """Results so far in a run directory, by algorithm and seed."""
    from undrift.report.read import read_run

    results = {}
    for arm in read_run(folder).arms:
        for seed, curve in arm.curves.items():
            last = {name: float(values[-1]) for name, values in curve.values.items()}
            stop = _stopped(int(curve.rounds[-1]), arm.stops.get(seed))
            results[arm.name, seed] = _joined(_told(last, norms), stop)
        for seed, failure in arm.failures.items():
            results[arm.name, seed] = _failed(failure.round, failure.reason)
    return results


def _name(event: Event) -> str:
    return f"{event.label}, seed {event.seed}"


def _joined(*facts: str, between: str = ", ") -> str:
    return between.join(filter(None, facts))


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _failed(round: int, reason: str) -> str:
    return f"ended in round {round}: {reason}"


def _stopped(round: int, rule: str | None) -> str:
    return f"stopped after round {round}: {rule}" if rule else ""


def _told(row: dict[str, Any], norms: bool) -> str:
    """The last evaluation: accuracy, or the loss where there is none, and perhaps norms."""
    known = [n for n in (*RESULTS, *NORMS) if row.get(n) is not None and math.isfinite(row[n])]
    result = [name for name in known if name in RESULTS][:1]
    names = [*result, *(name for name in known if norms and name in NORMS)]
    return "  ".join(QUANTITIES[name].labelled(row[name]) for name in names)
