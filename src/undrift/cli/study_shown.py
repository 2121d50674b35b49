"""What `undrift show` and `undrift ls` say of a study or sweep."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from undrift.config import UndriftError
from undrift.report.text import printable
from undrift.runs.layout import STUDY_HOLDS, RunFile, StudyFile, study_runs
from undrift.system.lock import holder


def print_files(console: Console, folder: Path, holds: Mapping[str, str]) -> None:
    """The files of a folder, with what they hold."""
    files = Table(box=None, show_header=False, pad_edge=False)
    for path in sorted(folder.iterdir()):
        if not path.name.startswith("."):
            files.add_row(Text(printable(path.name)), holds.get(path.name, ""))
    console.print(Text(f"in {printable(folder)}:"), soft_wrap=True)
    console.print(files)


def show_study(folder: Path) -> None:
    """Settings, state, the table if there is one, and files."""
    found, row = _settings(folder), study_row(folder)
    console = Console(highlight=False)
    about = Table(box=None, show_header=False, pad_edge=False)
    experiment = found["experiment"]
    facts = {"kind": found["kind"], "algorithms": ", ".join(row["algorithms"])}
    facts |= {name: experiment.get(name) for name in ("data", "partition", "sampler", "rounds")}
    facts |= {name: one for name, one in found["settings"].items() if one not in (None, {}, False)}
    facts |= {"state": row["state"], "trials begun": row["trials"]}
    for name, value in facts.items():
        about.add_row(name.replace("_", " "), Text(printable(value), overflow="fold"))
    console.print(about)
    table = folder / RunFile.TABLE_MD
    if table.is_file():
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
        console.print(Text("\n".join(["", *map(printable, lines)])), soft_wrap=True)
    best = {path.name: f"best settings: undrift run {path}" for path in folder.glob("best-*.toml")}
    print_files(console, folder, STUDY_HOLDS | best)


def study_row(folder: Path) -> dict[str, Any]:
    """What `undrift ls` says of it."""
    runs = study_runs(folder)
    files = [folder / StudyFile.STUDY, folder / StudyFile.LEDGER, *runs]
    youngest = max(path.stat().st_mtime for path in files if path.exists())
    row: dict[str, Any] = {"name": folder.resolve().name, "path": str(folder)}
    row |= {"age_seconds": round(time.time() - youngest), "trials": len(runs)}
    working = any(holder(run) is not None for run in runs)
    ended = (folder / RunFile.REPORT).exists()
    row["state"] = "running" if working else "finished" if ended else "interrupted"
    try:
        found = _settings(folder)
    except UndriftError as error:
        return row | {"state": "broken", "error": str(error)}
    names = list(map(str, found["experiment"]["algorithms"]))
    data = found["experiment"].get("data", "")
    kind = {"tune": "study", "sweep": "sweep"}.get(found["kind"], "")
    return row | {
        "kind": kind,
        "algorithms": names,
        "about": f"{kind}: {', '.join(names)} on {data}",
    }


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / StudyFile.STUDY
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found["settings"], dict) and found["experiment"]["algorithms"]:
            return dict(found)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UndriftError(f"{path} cannot be read; restore it from a backup")
