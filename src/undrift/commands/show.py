"""`undrift show` and `undrift ls`: what a run is, how far it has come, and where things are."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from undrift.config import UndriftError
from undrift.lock import holder
from undrift.report import Run, read_run
from undrift.report.read import Arm
from undrift.report.summary import Estimate, best_peak
from undrift.report.units import brief, prefix

FILES = {
    "experiment.json": "settings and facts",
    "experiment.toml": "settings, for `undrift run`",
    "environment.json": "versions and machine of each session",
    "metrics.jsonl": "one row an evaluation",
    "metrics.parquet": "the same as columns, for pandas, polars and duckdb",
    "partition.json": "who holds what, first seed",
    "verdicts.json": "legs that ended early, and why",
    "run.log": "what happened when",
    "checkpoints": "states to go on from",
    "models": "the models that legs ended with, as safetensors",
    "origin": "states of the run that this one was forked from",
    "tensorboard": "for `tensorboard --logdir`",
    "mlflow": "for `mlflow ui`",
    "wandb": "for `wandb sync`",
    "report.html": "the report: open it in a browser",
    "table.md": "results, as Markdown",
    "table.tex": "results, as LaTeX",
    "table.csv": "results, in full",
    "seeds.csv": "results of each seed",
    "figures": "figures for a paper",
}
"""what the files in a run directory are"""

QUANTITIES = {"loss": ".4f", "x_norm": ".2f", "h_norm": ".2f", "drift": ".3f"}
"""what is printed of the last evaluation beside accuracy and traffic, and with how many digits"""


def show(run: Path) -> None:
    """Show a run: settings, progress, the last evaluation, verdicts, and where its files are.

    Example: undrift show runs/3f2a90c1d7be

    Parameters
    ----------
    run
        Run directory; `undrift ls` lists them.
    """
    found = read_run(run)
    console = Console(highlight=False)
    settings = Table(box=None, show_header=False, pad_edge=False)
    for key, value in found.experiment.items():
        if value is not None and key != "groups":  # large models have hundreds
            settings.add_row(key.replace("_", " "), Text(_plain(key, value), overflow="fold"))
    console.print(settings)
    console.print(_last(found))
    for arm in found.arms:
        for verdict in arm.verdicts.values():
            where = f"{arm.label}, seed {verdict.seed}, ended in round {verdict.round}"
            console.print(Text(f"{where}: {verdict.reason}", style="red"))
    files = Table(box=None, show_header=False, pad_edge=False)
    for path in sorted(run.iterdir()):
        if not path.name.startswith("."):
            files.add_row(Text(path.name), FILES.get(path.name, ""))
    console.print(f"in {run}:", markup=False, soft_wrap=True)
    console.print(files)


def ls(
    folder: Path = Path("runs"),
    *,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """List the runs in a folder, the latest first.

    Example: undrift ls runs

    Rounds are means over algorithms and seeds; the best accuracy is that of the best algorithm,
    averaged over its seeds.

    Parameters
    ----------
    folder
        Folder that holds run directories.
    json_
        Print JSON.
    """
    if not folder.is_dir():
        raise UndriftError(f"{str(folder)!r} is not a folder; give the one that holds your runs")
    here = [folder, *folder.iterdir()]
    rows = [_row(path) for path in here if (path / "experiment.json").exists()]
    rows.sort(key=lambda row: row["age_seconds"])
    if json_:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    console = Console(highlight=False)
    if not rows:
        console.print(f"no runs in {folder}; `undrift compare` makes one", markup=False)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("run", no_wrap=True)  # to be copied
    for head in ("data", "algorithms"):
        table.add_column(head, overflow="fold")
    table.add_column("state")
    for head in ("rounds", "best (%)", "age"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        age = _age(row["age_seconds"])
        if "error" in row:
            table.add_row(Text(row["name"]), "", Text(row["error"], "red"), "broken", "", "", age)
            continue
        best = "-" if row["best_accuracy"] is None else f"{100 * row['best_accuracy']:.2f}"
        words = (row["name"], row["data"], ", ".join(row["algorithms"]), row["state"])
        table.add_row(*map(Text, words), f"{row['done']}/{row['rounds']}", best, age)
    console.print(table)


def _row(path: Path) -> dict[str, Any]:
    """What `ls` says of a run."""
    row: dict[str, Any] = {"name": path.resolve().name, "path": str(path)}
    row["age_seconds"] = round(time.time() - max(file.stat().st_mtime for file in _data(path)))
    try:
        run = read_run(path)
    except UndriftError as error:
        return row | {"error": str(error)}
    state = "finished" if run.finished else "interrupted"
    if any(arm.verdicts for arm in run.arms):
        state += ", diverged"
    return row | {
        "hash": str(run.experiment.get("hash", "")),
        "data": str(run.experiment.get("data", "")),
        "algorithms": [arm.label for arm in run.arms],
        "seeds": list(run.seeds),
        "state": "running" if holder(path) else state,
        "done": run.done,
        "rounds": run.rounds,
        "best_accuracy": best_peak(run),
    }


def _data(path: Path) -> list[Path]:
    """The files that a run writes as it goes along; reports may be younger."""
    return [path / name for name in ("experiment.json", "metrics.jsonl") if (path / name).exists()]


def _last(run: Run) -> Table:
    """Each algorithm in the last round that all its begun seeds evaluated: means over seeds."""
    kept = [name for name in QUANTITIES if run.recorded(name)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("algorithm", overflow="fold", min_width=9)
    for head in ("rounds", "accuracy (%)", *(name.replace("_", " ") for name in kept), "traffic"):
        table.add_column(head, justify="right", no_wrap=True)
    for arm in run.arms:
        shared = arm.shared_rounds
        done = f"{shared[-1] if shared.size else 0}/{run.rounds}"
        if len(arm.curves) < len(arm.seeds):
            done += f", {len(arm.curves)}/{len(arm.seeds)} seeds"
        accuracy = _at_end(arm, "accuracy")
        spread = "" if accuracy is None or accuracy.sd is None else f" ± {100 * accuracy.sd:.2f}"
        cells = ["-" if accuracy is None else f"{100 * accuracy.mean:.2f}{spread}"]
        for name in kept:
            value = _at_end(arm, name)
            cells.append("-" if value is None else f"{value.mean:{QUANTITIES[name]}}")
        traffic = _at_end(arm, "bytes")
        unit, letter = prefix(traffic.mean if traffic else 0.0)
        cells.append("-" if traffic is None else f"{brief(traffic.mean / unit)} {letter}B")
        table.add_row(Text(arm.label), done, *cells)
    return table


def _at_end(arm: Arm, metric: str) -> Estimate | None:
    shared = arm.shared_rounds
    if not shared.size:
        return None
    return Estimate.of(
        [curve[metric][curve.rounds == shared[-1]][0] for curve in arm.curves.values()]
    )


def _plain(key: str, value: Any) -> str:
    if key == "algorithms":
        return ", ".join(entry["name"] for entry in value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _age(seconds: float) -> str:
    """Time in its largest unit: 3 min, 2 d."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
