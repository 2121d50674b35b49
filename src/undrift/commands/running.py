"""Running an experiment on the command line: progress, results, report."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

from undrift.commands.progress import show_progress
from undrift.engines import EngineName
from undrift.experiment import Experiment
from undrift.interrupt import Terminated, terminable
from undrift.report import read_run, require_extras, rich_table, summarise, write_report
from undrift.runner import SAVE_EVERY, Event
from undrift.runner import run as go


def run(
    experiment: Experiment,
    out: Path | None = None,
    *,
    engine: EngineName = "auto",
    workers: int | None = None,
    save_every: float = SAVE_EVERY,
    data_dir: Path | None = None,
    as_json: bool = False,
) -> None:
    """Run an experiment, or what is left of it, showing what happens, and write its report."""
    folder = out or Path("runs") / experiment.hash
    require_extras()
    happening = go(
        experiment,
        folder,
        engine=engine,
        workers=workers,
        save_every=save_every,
        command=shlex.join(["undrift", *sys.argv[1:]]),
        data_dir=None if data_dir is None else str(data_dir.resolve()),
    )
    show: Callable[[Experiment, Iterable[Event]], None] = show_json if as_json else show_progress
    try:
        with terminable(), closing(happening) as events:
            show(experiment, events)
    except KeyboardInterrupt as stop:
        sys.stderr.write(f"stopped; go on with: {shlex.join(['undrift', 'resume', str(folder)])}\n")
        sys.exit(143 if isinstance(stop, Terminated) else 130)
    page = write_report(folder)
    if as_json:
        _print_json({"event": "report", "page": str(page)})
        return
    console, finished = Console(), read_run(folder)
    console.print(rich_table(finished, summarise(finished)))
    console.print(f"report: {page}", soft_wrap=True)


def show_json(experiment: Experiment, events: Iterable[Event]) -> None:
    """One JSON object a line for all that happens but single rounds."""
    for event in events:
        place = {"algorithm": event.algorithm, "label": event.label, "seed": event.seed}
        match event.kind:
            case "row":
                _print_json({"event": "row"} | (event.row or {}))
            case "begin" | "end":
                _print_json({"event": event.kind} | place | {"round": event.round})
            case "start" | "note":
                _print_json({"event": event.kind, "note": event.note})


def _print_json(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
