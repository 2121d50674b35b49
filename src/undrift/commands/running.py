"""Running an experiment on the command line: progress, results, report."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from undrift.data.federated import FederatedData
from undrift.engines import Engine
from undrift.experiment import Experiment
from undrift.report import read_run, require_extras, rich_table, summarise, write_report
from undrift.rounds import prepare
from undrift.runs import RunWriter
from undrift.task import Task


def run(experiment: Experiment, out: Path | None, engine: Engine, *, as_json: bool = False) -> None:
    """Run an experiment, showing what happens, and write its report."""
    folder = out or Path("runs") / experiment.hash
    command = shlex.join(["undrift", *sys.argv[1:]])
    torch.set_num_threads(1)  # small models gain nothing from more, and bits must not depend on it
    require_extras()
    first = experiment.check()
    writer = RunWriter(folder, experiment, command, *first)
    console = Console(quiet=as_json)
    try:
        console.print(f"engine: {prepare(engine, *first, experiment.local)}", highlight=False)
        _run_all(experiment, writer, first, engine, console, as_json)
    except KeyboardInterrupt:
        sys.stderr.write(f"stopped; what was measured so far is in {folder}\n")
        sys.exit(130)
    finally:
        writer.close()
    page = write_report(folder)
    if as_json:
        sys.stdout.write(json.dumps({"report": str(page)}) + "\n")
        return
    finished = read_run(folder)
    console.print(rich_table(finished, summarise(finished)))
    console.print(f"report: {page}", soft_wrap=True)


def _run_all(
    experiment: Experiment,
    writer: RunWriter,
    first: tuple[Task, FederatedData],
    engine: Engine,
    console: Console,
    as_json: bool,
) -> None:
    """Every algorithm on every seed, with a bar for each algorithm on a terminal."""
    live = console.is_terminal and not as_json
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TextColumn("{task.fields[accuracy]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not live) as progress:
        total = experiment.rounds * len(experiment.seeds)
        bars = [
            progress.add_task(label, total=total, accuracy="", start=False)
            for label in writer.labels
        ]
        for number, seed in enumerate(experiment.seeds):
            task, data = experiment.prepare(seed) if number else first
            for made, label, bar in zip(experiment.algorithms, writer.labels, bars, strict=True):
                progress.start_task(bar)
                accuracy = ""
                for measured in experiment.run(made, seed, task, data, engine):
                    row = writer.add(measured)
                    accuracy = f"accuracy {_percent(row['accuracy'])}"
                    done = number * experiment.rounds + row["round"]
                    progress.update(bar, completed=done, accuracy=accuracy)
                    if as_json:
                        sys.stdout.write(json.dumps(row) + "\n")
                if not live:
                    console.print(f"{label}, seed {seed}: {accuracy}")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
