"""`undrift report`: a page, figures and tables from finished runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from undrift.config import UndriftError, unknown
from undrift.report import (
    COLUMNS,
    FORMATS,
    Run,
    merge,
    read_run,
    require_extras,
    rich_seed_table,
    rich_table,
    summarise,
    write_report,
)
from undrift.report.forks import beside
from undrift.report.labels import in_order
from undrift.report.merge import traced
from undrift.report.score import ACCURACY
from undrift.report.text import printable


def report(
    *runs: Annotated[Path, Parameter(help="Run directories.")],
    target: float | None = None,
    baseline: str | None = None,
    out: Path | None = None,
    columns: str | None = None,
    formats: str = ",".join(FORMATS),
) -> None:
    """Make one page, figures and tables of one or several run directories.

    Example: undrift report runs/a runs/b --baseline FedAvg --target 0.9 --out report

    Writes report.html, which needs no other file; figures/ for a paper; table.md, table.tex
    (booktabs) and table.csv with means, standard deviations and 95 % intervals over seeds; and
    seeds.csv with every seed. Runs that differ in their seeds only are pooled, as if they had been
    one; others are labelled and ordered by the settings in which they differ. Runs need not be
    finished. Those that cannot be read are left out, and the exit code is 1.

    Parameters
    ----------
    target
        Report the rounds, bytes and FLOPs to this accuracy, instead of to that of the runs.
    baseline
        Algorithm to compare the others with, seed by seed: a name from the table, such as FedAvg.
        Algorithms are compared on the same data, partition, model, sampler and rounds only.
    out
        Folder to write into; that of the run for one run, "report" for several.
    columns
        Columns of the table, with commas between them, of final, balanced (accuracy in which all
        classes count alike), behind, last (the last tenth of the rounds), best, clients (mean over
        clients on their own test samples), personal (the same after some local steps), seeds,
        rounds, traffic, compute and notes. Rounds, traffic and compute are those to the target if
        there is one. A terminal shows the columns that fit, the first ones first. table.csv has all
        numbers in any case.
    formats
        Kinds of files for the figures, with commas between them.
    """
    if not runs:
        raise UndriftError("name at least one run directory; `undrift ls` shows them")
    if target is not None and not 0 < target <= 1:
        raise UndriftError(f"--target {target}: must be a number > 0 and <= 1")
    kinds = _chosen("--formats", "kind of figure", formats, FORMATS)
    names = None if columns is None else _chosen("--columns", "column", columns, COLUMNS)
    require_extras()
    known, errors = _read(runs)
    if not known:
        raise UndriftError("\n".join(errors))
    if len(known) == 1 and known[0].arms[0].fork:
        known = [traced(known[0], beside(known[0].folder))]
    together = merge(in_order(known))
    if target is not None and not together.recorded(ACCURACY.metric):
        raise UndriftError(
            f"--target {target}: there are no accuracies in these runs; leave it out"
        )
    together = together if target is None else replace(together, target=target)
    folder = out or (runs[0] if len(runs) == 1 else Path("report"))
    page = write_report(together, folder, baseline=baseline, formats=kinds, columns=names)
    console = Console(highlight=False)
    rows = summarise(together, baseline)
    console.print(rich_table(together, rows, names))
    if baseline is not None:
        console.print(rich_seed_table(rows))
    console.print(Text(f"report: {printable(page)}"), soft_wrap=True)
    if errors:
        sys.stderr.write("".join(f"undrift: left out: {error}\n" for error in errors))
        sys.exit(1)


def _chosen(flag: str, kind: str, text: str, known: Sequence[str]) -> list[str]:
    """The names in a text with commas between them."""
    names = [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UndriftError(f"{flag}: " + unknown(kind, name, known))
    return names


def _read(folders: tuple[Path, ...]) -> tuple[list[Run], list[str]]:
    """The runs that can be shown, and what is wrong with the others."""
    known, errors = [], []
    for folder in folders:
        try:
            run = read_run(folder)
        except UndriftError as error:
            errors.append(str(error))
            continue
        if run.begun:
            known.append(run)
        else:
            errors.append(f"{str(folder)!r} holds no evaluated round; run it first")
    return known, errors
