"""Running an experiment on the command line: progress, results, report."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from undrift.cli.whole import Count
from undrift.config.choices import SAVE_EVERY
from undrift.runs.layout import RunFile
from undrift.system.signals import Terminated, terminable

if TYPE_CHECKING:
    from undrift.experiment.experiment import Experiment
    from undrift.runs.runner import Event
    from undrift.runs.trackers import Trackers


OwnFiles = Annotated[tuple[Path, ...], Parameter(negative="", show_default=False)]

ALL_DIVERGED = 3
"""exit code when every trial of a run, study or sweep ended with a failure"""


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """Where and how an experiment runs, on which nothing depends but an engine's last digits."""

    data_dir: Path | None = None
    """Folder with the data set's files; without this option they are downloaded."""
    engine: str = "auto"
    """Where clients run: compiled, threads, sequential, or auto for the fastest of them on one
    machine; "Ray(address='auto')" for several machines, never for one (undrift list engines)."""
    workers: Count | None = None
    """Clients that run side by side; one for each core if not given."""
    save_every: float = SAVE_EVERY
    """Seconds between two checkpoints; a crash costs no more than that."""
    track: Annotated[
        tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = ()
    """Also log to tensorboard, mlflow or wandb, in files of the run directory."""
    json_: Annotated[bool, Parameter("--json")] = False
    """Print one JSON object an event, and no tables."""

    def session(self) -> dict[str, Any]:
        """What `undrift.runs.runner.run` is told about how to run, and by whom."""
        return {
            "engine": self.engine,
            "workers": self.workers,
            "save_every": self.save_every,
            "command": this_command(),
            "data_dir": None if self.data_dir is None else str(self.data_dir.resolve()),
        }


def run(experiment: Experiment, out: Path | None, options: Options) -> None:
    """Run an experiment, or what is left of it, showing what happens, and write its report."""
    from undrift.cli.size import advice
    from undrift.data.files.fetch import use_data_dir
    from undrift.report import read_run, require_extras, rich_table, summarise, write_report
    from undrift.report.forks import beside
    from undrift.report.merge import traced
    from undrift.report.text import printable

    use_data_dir(options.data_dir)
    folder = out or Path("runs") / experiment.hash
    require_extras()
    with resumable(folder, RunFile.EXPERIMENT):
        train(experiment, folder, options)
    finished = traced(read_run(folder), beside(folder))
    page = write_report(finished)
    if options.json_:
        _print_json({"event": "report", "page": str(page)})
    else:
        console = Console()
        console.print(rich_table(finished, summarise(finished)))
        for name in options.track:
            console.print(Text(f"{name}: {printable(folder / name)}"), soft_wrap=True)
        console.print(Text(f"report: {printable(page)}"), soft_wrap=True)
        if note := advice(folder):
            console.print(Text(note), soft_wrap=True)
    if finished.all_failed:
        end_diverged()


def train(experiment: Experiment, folder: Path, options: Options, **more: Any) -> None:
    """Run an experiment in a folder, showing and tracking what happens."""
    from undrift.cli.progress import show_progress
    from undrift.runs.runner import run as go
    from undrift.runs.trackers import Trackers

    tracking = Trackers(options.track, folder, experiment.hash, experiment.resolved(), _warn)
    happening = go(experiment, folder, **options.session(), **more)
    show: Callable[[Experiment, Iterable[Event]], None]
    show = _show_json if options.json_ else partial(show_progress, folder=folder)
    with closing(tracking), closing(happening):
        show(experiment, _tracked(happening, tracking))


def end_diverged() -> None:
    """End a command of which every trial failed."""
    _warn("all trials diverged; try a smaller step size (lr)")
    sys.exit(ALL_DIVERGED)


@contextmanager
def resumable(folder: Path, begun: str | RunFile = "") -> Iterator[None]:
    """Ctrl-C and SIGTERM inside the block end the process and say how to go on in the folder.

    begun  the file without which there is nothing to go on with yet
    """
    try:
        with terminable():
            yield
    except KeyboardInterrupt as stop:
        if (folder / begun).exists():
            again = shlex.join(["undrift", "resume", str(folder)])
            sys.stderr.write(f"stopped; resume with: {again}\n")
        sys.exit(143 if isinstance(stop, Terminated) else 130)


def this_command() -> str:
    """What was typed."""
    return shlex.join(["undrift", *sys.argv[1:]])


def _tracked(events: Iterable[Event], tracking: Trackers) -> Iterator[Event]:
    """The same events, told to the trackers first."""
    for event in events:
        match event.kind:
            case "begin":
                tracking.begin(event.label, event.algorithm, event.seed, after=event.round)
            case "row":
                tracking.row(event.row or {})
            case "end":
                tracking.end(event.note)
        yield event


def _show_json(experiment: Experiment, events: Iterable[Event]) -> None:
    """One JSON object a line for all that happens but single rounds."""
    for event in events:
        place = {"algorithm": event.algorithm, "label": event.label, "seed": event.seed}
        match event.kind:
            case "row":
                _print_json({"event": "row"} | (event.row or {}))
            case "done" | "begin":
                _print_json({"event": event.kind} | place | {"round": event.round})
            case "end":
                how = {"round": event.round, "failure": event.note, "stopped": event.stopped}
                _print_json({"event": "end"} | place | how)
            case "start" | "note":
                _print_json({"event": event.kind, "note": event.note})


def _print_json(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _warn(text: str) -> None:
    sys.stderr.write(f"undrift: {text}\n")
