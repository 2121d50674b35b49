"""`undrift show` and `undrift ls`: what a run is, how far it has come, and where things are."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from undrift.cli.study_shown import print_files, show_study, study_row
from undrift.config import UndriftError, shortened
from undrift.measure.quantities import QUANTITIES, Quantity
from undrift.report import Run, read_run
from undrift.report.estimate import Estimate
from undrift.report.forks import beside
from undrift.report.labels import code_lines, descriptions
from undrift.report.merge import traced
from undrift.report.read import Arm, TrialRecord
from undrift.report.score import ACCURACY
from undrift.report.settings import spelled
from undrift.report.summary import best_peak, latest
from undrift.report.terminal import TerminalTable
from undrift.report.text import printable
from undrift.report.units import brief, prefix, span
from undrift.runs.columns import Floats
from undrift.runs.layout import HOLDS, RunFile, is_study, study_runs
from undrift.runs.reading import is_folder, run_state
from undrift.system.lock import holder

LAST = ("loss", "x_norm", "h_norm", "drift")
"""quantities of the last evaluation that are printed beside score and traffic"""


def show(run: Path) -> None:
    """Show a run: settings, progress, the last evaluation, failures, and where its files are.

    Example: undrift show runs/3f2a90c1d7be

    Parameters
    ----------
    run
        Run directory, `undrift ls` lists them; or the folder of a study or sweep.
    """
    if is_study(run):
        show_study(run)
        return
    found = read_run(run)
    if found.arms[0].fork:
        found = traced(found, beside(run))
    console = Console(highlight=False)
    settings = Table(box=None, show_header=False, pad_edge=False)
    fork = found.arms[0].fork
    origin = {"origin": fork.said(*(arm.name for arm in found.arms))} if fork else {}
    for key, value in {**found.experiment, **origin}.items():
        if value is not None and key != "groups":  # large models have hundreds
            name = Text(printable(key.replace("_", " ")))
            lines = "\n".join(map(printable, _lines(key, value)))
            settings.add_row(name, Text(lines, overflow="fold"))
    settings.add_row("state", run_state(holder(run), found.finished))
    console.print(settings)
    console.print(_last(found))
    for arm in found.arms:
        for failure in arm.failures.values():
            where = f"{arm.label}, seed {failure.seed}, ended in round {failure.round}"
            console.print(Text(printable(f"{where}: {failure.reason}"), style="red"))
        for seed, rule in arm.stops.items():
            where = f"{arm.label}, seed {seed}, stopped after round {arm.curves[seed].rounds[-1]}"
            console.print(Text(printable(f"{where}: {rule}")))
    print_files(console, run, HOLDS)


def ls(
    folder: Path = Path("runs"),
    *,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """List the runs in a folder, the latest first.

    Example: undrift ls runs

    Runs of the same data and algorithms are told apart by the settings in which they differ.
    A trial is one algorithm on one seed; rounds are means over trials. The best accuracy (or RMSE,
    where there are no classes) is that of the best algorithm, averaged over its seeds. Of a study
    or sweep, trials are those that were begun; its own folder lists their runs.

    Parameters
    ----------
    folder
        Folder that holds run directories, or that of a study or sweep.
    json_
        Print JSON.
    """
    if not is_folder(folder):
        shown = shortened(str(folder))
        raise UndriftError(f"{shown} is not a folder; give the one that holds your runs")
    studies = [] if is_study(folder) else [path for path in _within(folder) if is_study(path)]
    within = study_runs(folder) if is_study(folder) else _within(folder)
    found = [one for path in (folder, *within) if (one := _row(path))]
    found += [(study_row(path), None) for path in studies]
    found.sort(key=lambda one: one[0]["age_seconds"])
    rows = [row for row, _ in found]
    known = [(row, run) for row, run in found if run is not None]
    called = {row["hash"]: row["name"] for row, _ in known}
    runs = [traced(run, called) for _, run in known]
    for (row, _), about in zip(known, descriptions(runs), strict=True):
        row["about"] = about
    if json_:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    console = Console(highlight=False)
    if not rows:
        deeper = sorted(found.parents[1] for found in folder.glob(f"*/*/{RunFile.EXPERIMENT}"))
        there = f"`undrift ls {deeper[0]}` lists some" if deeper else "`undrift compare` makes one"
        console.print(Text(printable(f"no runs in {folder}; {there}")))
        return
    console.print(_listed(rows, console.width))


def _listed(rows: list[dict[str, Any]], width: int) -> Group:
    """A line for each run, and below it what it is about: names stay whole on any terminal."""
    heads = ("run", "state", "trials", "rounds", "best", "age")
    lines = [heads, *(_line(row) for row in rows)]
    widths = [max(len(line[place]) + 2 for line in lines) for place in range(len(heads))]
    widths[0] = max(min(widths[0], width - sum(widths[1:])), 1)
    shown: list[RenderableType] = []
    for number, (name, *cells) in enumerate(lines):
        alone = len(name) >= widths[0]  # a line of its own for a name that is too long
        text = f"{name}\n{'':{widths[0]}}" if alone else name.ljust(widths[0])
        text += "".join(cell.ljust(wide) for cell, wide in zip(cells, widths[1:], strict=True))
        shown.append(Text(text.rstrip(), "bold" if number else "dim", overflow="fold"))
        if number:
            shown.append(Padding(_about(rows[number - 1]), (0, 0, 0, 2)))
    return Group(*shown)


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    name, age = printable(row["name"]), span(row["age_seconds"])
    if "error" in row:
        return (name, row["state"], "", "", "", age)
    if "kind" in row:
        return (name, row["state"], str(row["trials"]), "", "", age)
    trials, rounds = (f"{row[done]}/{row[of]}" for done, of in _COUNTS)
    return (name, row["state"], trials, rounds, row["best"], age)


def _about(row: dict[str, Any]) -> Text:
    if "error" in row:
        return Text(printable(row["error"]), "red")
    left = row.get("seconds_left")
    return Text(printable(row["about"]) + ("" if left is None else f"; {span(left)} left"))


_COUNTS = (("trials_done", "trials"), ("done", "rounds"))
"""what of a row is done, and of how many"""


def _within(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise UndriftError(f"{str(folder)!r} cannot be read ({error.strerror})") from None


def _row(path: Path) -> tuple[dict[str, Any], Run | None] | None:
    """What `ls` says of a run, and the run if it can be read; None for what is no run."""
    row: dict[str, Any] = {"name": path.name, "path": str(path), "age_seconds": 0}
    process = holder(path)
    try:
        times = [file.stat().st_mtime for file in _data(path)]
    except OSError as error:
        said = f"cannot be read ({error})"
        return row | {"state": run_state(process, None), "error": said}, None
    if not times:
        return None
    row["name"] = path.resolve().name
    row["age_seconds"] = round(time.time() - max(times))
    try:
        run = read_run(path)
    except UndriftError as error:
        return row | {"state": run_state(process, None), "error": str(error)}, None
    best, score = best_peak(run), run.score
    state: str = run_state(process, run.finished)
    if process is None and any(arm.failures for arm in run.arms):
        state += ", diverged"
    return row | {
        "hash": str(run.experiment.get("hash", "")),
        "data": str(run.experiment.get("data", "")),
        "algorithms": [arm.label for arm in run.arms],
        "seeds": list(run.seeds),
        "state": state,
        "done": run.done,
        "rounds": run.rounds,
        "trials_done": run.trials_done,
        "trials": run.trials,
        "seconds_left": run.seconds_left if process is not None else None,
        "best_accuracy": best if score is ACCURACY else None,
        "best": "-" if best is None else score.said(score.number(best)),
    }, run


def _data(path: Path) -> list[Path]:
    """The files that a run writes as it goes along; reports may be younger."""
    files = [path / RunFile.EXPERIMENT, path / RunFile.METRICS]
    return [file for file in files if file.exists()] if files[0].exists() else []


def _last(run: Run) -> TerminalTable:
    """Each algorithm in the last round that all its begun seeds evaluated: means over seeds."""
    score = run.score
    names = ("balanced_accuracy", *LAST) if run.imbalanced else LAST
    others = [QUANTITIES[name] for name in names if run.recorded(name) and name != score.metric]
    columns = {
        "rounds": ("rounds", [_done(run, arm) for arm in run.arms]),
        score.name: (score.heading, [_latest(arm, score.of, score.numbers) for arm in run.arms]),
    }
    for one in (*others, QUANTITIES["bytes"]):
        of, text = itemgetter(one.name), partial(_mean, one)
        head = f"{one.short} ({one.unit})" if one.share else one.short
        columns[one.short] = head, [_latest(arm, of, text) for arm in run.arms]
    labels = [printable(arm.label) for arm in run.arms]
    kept = sorted(columns, key=lambda name: name != score.name)  # the result in any case
    room = "A wider terminal has room for them."
    return TerminalTable(labels, [False for _ in labels], columns, kept, "", room)


def _latest(
    arm: Arm, values: Callable[[TrialRecord], Floats], text: Callable[[Estimate], str]
) -> str:
    result = latest(arm, values)
    return "-" if result is None else text(result)


def _mean(quantity: Quantity, result: Estimate) -> str:
    if not quantity.prefixed:
        return quantity.number(result.mean)
    unit, letter = prefix(result.mean)
    return f"{brief(result.mean / unit)} {letter}{quantity.unit}"


def _done(run: Run, arm: Arm) -> str:
    done = f"{arm.shared_rounds[-1] if arm.shared_rounds.size else 0}/{run.rounds}"
    begun, seeds = len(arm.curves), len(arm.seeds)
    return done if begun == seeds else f"{done}, {begun}/{seeds} seeds"


def _lines(key: str, value: Any) -> list[str]:
    if key == "code" and isinstance(value, dict):
        return code_lines(value)
    return [_plain(key, value)]


def _plain(key: str, value: Any) -> str:
    if key == "algorithms":
        return ", ".join(entry["name"] for entry in value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(spelled(key, value))
