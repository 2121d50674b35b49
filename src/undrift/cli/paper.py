"""`undrift paper`: the tables and figures of the papers, what they claim and what came out here."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from undrift.cli.paper_cells import (
    as_toml,
    chosen_cells,
    collect_done,
    existing,
    folders,
    named,
    run_job,
    say,
    time_left,
)
from undrift.cli.running import Options
from undrift.cli.whole import Count
from undrift.config import UndriftError
from undrift.papers import FOLDER, FULL
from undrift.system.lock import holder

if TYPE_CHECKING:
    from undrift.papers.item import Cell, Item

paper_app = App(
    name="paper", help="The tables and figures of the papers: claims, budgets, runs and verdicts."
)

Cells = Annotated[str, Parameter(negative="")]
Rows = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


@paper_app.command(name="list")
def list_(
    item: str = "*",
    *,
    results: Path | None = None,
    json_: Annotated[bool, Parameter("--json")] = False,
) -> None:
    """List tables and figures: what each claims, the verdicts so far, and what is left to run.

    Example: undrift paper list fedglad

    Parameters
    ----------
    item
        A paper (adabest, fedgbo, fedglad), an item or a pattern; all if not given.
    results
        Folder with results of your own, as for `undrift paper run`.
    json_
        Print JSON.
    """
    from undrift.papers.judging import Book, summary
    from undrift.papers.tables import price

    book = Book.read(item, folders(existing(results)))
    if json_:
        told = [
            {
                "item": one.item.id,
                "kind": one.item.kind,
                "source": one.item.source,
                "claim": one.item.claim,
                "cells": list(one.cells),
                "verdicts": one.counts,
                "trials_left": one.left.trials,
                "hours_left": one.hours(book.rates),
            }
            for one in book.outcomes
        ]
        sys.stdout.write(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        return
    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    stated = []
    for one in book.outcomes:
        if one.item.kind == "stated":
            stated.append(one.item.id)
            continue
        left = price(one, book.rates)
        lines = [*summary(one.counts), *([f"left to run: {left}"] if left else [])]
        table.add_row(Text(one.item.id, style="bold"), Text(one.item.claim))
        table.add_row("", Text("\n".join([*lines, ""]), style="dim"))
    console.print(table)
    if stated:
        say(console, f"Nothing to run in {', '.join(stated)}.\n")
    for line in summary(book.counts):
        say(console, line)


@paper_app.command
def show(
    item: str,
    *,
    cells: Cells = "",
    scale: str = FULL,
    toml: bool = False,
    rows: Rows = (),
    results: Path | None = None,
) -> None:
    """Show an item: its claim, criteria, settings, budget, the paper's values and ours.

    Example: undrift paper show adabest/table2 --cells "emnist-l,cp=1%"

    Parameters
    ----------
    item
        An item, such as adabest/table2.
    cells
        Which cells, as for `undrift paper run`.
    scale
        Scale of the settings and the budget.
    toml
        Print the experiment of a cell as a file for `undrift run`, and nothing else.
    rows
        With --toml: which rows, as for `undrift paper run`; those of one file share all settings.
    results
        Folder with results of your own, as for `undrift paper run`.
    """
    from undrift.cli.paper_shown import show_item
    from undrift.papers.catalogue import item as the_item

    one, read = the_item(item), folders(existing(results))
    if rows and not toml:
        raise UndriftError(f"--rows {' '.join(rows)}: is for --toml; the tables have all rows")
    if toml or cells or scale != FULL:
        [(_, chosen)] = chosen_cells(item, cells, scale, None, rows)
    if toml:
        sys.stdout.write(as_toml(chosen))
    else:
        show_item(one, cells, scale, read)


@paper_app.command
def report(
    item: str = "*", *, out: Path = Path("paper-report"), results: Path | None = None
) -> None:
    """Write a page of all items with verdicts, and tables in Markdown and LaTeX.

    Example: undrift paper report --out paper-report

    Parameters
    ----------
    item
        A paper, an item or a pattern; all if not given.
    out
        Folder for the page and the tables.
    results
        Folder with results of your own, as for `undrift paper run`.
    """
    from undrift.papers.judging import Book, summary
    from undrift.papers.page import write_page

    console, book = Console(highlight=False), Book.read(item, folders(existing(results)))
    page = write_page(book, out)
    for line in summary(book.counts):
        say(console, line)
    say(console, f"report: {page}")


@paper_app.command
def verify(
    item: str = "*",
    *,
    number: Count = 3,
    results: Path | None = None,
    options: Options = Options(),
) -> None:
    """Compute some kept results again, the shortest ones, and compare them bit for bit.

    Example: undrift paper verify adabest --number 2 --data-dir DATA

    Where another processor or version of torch rounds otherwise, it says so and compares within the
    tolerance of the item. The exit code is 1 if a result does not stand.

    Parameters
    ----------
    item
        A paper, an item or a pattern; all if not given.
    number
        How many trials to run.
    results
        Folder with the results, as for `undrift paper run`.
    """
    from undrift.data.files.fetch import use_data_dir
    from undrift.papers.catalogue import items
    from undrift.papers.verifying import shortest
    from undrift.papers.verifying import verify as again

    use_data_dir(options.data_dir)
    if options.track:
        raise UndriftError(
            f"--track {' '.join(options.track)}: only `undrift paper run` is tracked"
        )
    console = Console(highlight=False, stderr=options.json_)
    own = folders(existing(results))[-1]
    folder = own if results or own.is_dir() else FOLDER
    chosen = shortest(list(items(item)), folder, number)
    if not chosen:
        raise UndriftError(
            f"{folder} has no results of {item} to compute again; `undrift paper list` tells what "
            "was run"
        )
    sound = True
    for one, old in chosen:
        say(console, f"{one.id} {old.cell}, {old.row}, {old.rounds} rounds ...", style="dim")
        with TemporaryDirectory() as scratch:
            compared = again(one, old, folder, Path(scratch), **options.session())
        if options.json_:
            sys.stdout.write(json.dumps(compared.facts) + "\n")
        else:
            say(console, str(compared), style="" if compared.sound else "bold red")
        sound = sound and compared.sound
    if not sound:
        sys.exit(1)


@paper_app.command
def run(
    item: str,
    *,
    cells: Cells = "",
    rows: Rows = (),
    scale: str = FULL,
    seeds: Count | None = None,
    missing: bool = False,
    out: Path = Path("runs"),
    results: Path | None = None,
    options: Options = Options(),
) -> None:
    """Run the cells of an item, or what is left of them, and collect their results.

    Example: undrift paper run adabest/table2 --cells "emnist-l,cp=10%" --seeds 5 --data-dir DATA

    Each cell is an ordinary run directory, with which `undrift resume` and `report` work. The
    states of trials that are done are removed, as client memories would fill the disk: to `extend`
    such a run by rounds is to run it again.
    Trials that are done in any run directory in --out, under whatever name, are not run again.
    Stopped at any moment, the same command goes on.

    Parameters
    ----------
    item
        An item such as adabest/table2, or a pattern such as "fedglad/*"; `undrift paper list`.
    cells
        Which cells: parts of their ids with commas between, * and ? allowed. All if not given.
    rows
        Which rows of the paper's table, * and ? allowed; may be given more than once. All if not.
    scale
        full, or one of the item's smaller scales; smoke: two rounds on digits, which are collected
        only in a folder that --results gives.
    seeds
        Number of repetitions; as in the paper, or as the scale says, if not given.
    missing
        Only trials without a result in the files that `undrift paper show` reads.
    out
        Folder for the run directories.
    results
        Folder for the collected results; in a clone of undrift its own files if not given, else
        ./papers.
    """
    from undrift.data.files.fetch import use_data_dir
    from undrift.papers.judging import kept_results
    from undrift.papers.results import Runs
    from undrift.papers.running import jobs

    use_data_dir(options.data_dir)
    console, runs = Console(highlight=False, stderr=options.json_), Runs(out)
    todo: list[tuple[Item, Cell, int, set[str]]] = []
    for one, chosen in chosen_cells(item, cells, scale, seeds, rows):
        known = kept_results(one, folders(results)) if missing else []
        kept = {result.trial for result in known}
        work = [sum(job.work for job in jobs(one, cell, scale, runs, kept)) for cell in chosen]
        left = [(one, cell, more, kept) for cell, more in zip(chosen, work, strict=True) if more]
        if len(left) < len(chosen):
            say(console, f"{one.id}: {len(chosen) - len(left)} of {len(chosen)} cells are done")
        collect_done(console, one, chosen, scale, runs, results)
        todo += left
    done, spent = 0, 0.0
    for place, (one, cell, _, kept) in enumerate(todo):
        rest = sum(work for _, _, work, _ in todo[place:])
        left_over = f"; about {time_left(spent / done * rest)} left" if done else ""
        runs = Runs(out)  # the same command in another terminal may have run some
        for job in jobs(one, cell, scale, runs, kept):
            where = f"{place + 1} of {len(todo)}: {one.id} {cell.id} in {job.folder}{left_over}"
            say(console, where, style="bold")
            for line in named(cell, job.experiment):
                say(console, line, style="dim")
            begun = time.monotonic()
            try:
                run_job(job, options)
            except UndriftError:
                if not (process := holder(job.folder)):
                    raise
                say(console, f"skipped: process {process} is at it", style="yellow")
                continue
            spent, done = spent + time.monotonic() - begun, done + job.work
            runs.look(job.folder)
        collect_done(console, one, [cell], scale, runs, results)


@paper_app.command
def collect(
    item: str = "*",
    *,
    cells: Cells = "",
    scale: str | None = None,
    out: Path = Path("runs"),
    results: Path | None = None,
) -> None:
    """Collect the results of trials that are done, and run nothing.

    Example: undrift paper collect adabest/table2 --out runs

    Parameters
    ----------
    item
        An item or a pattern; all if not given.
    cells
        Which cells, as for `undrift paper run`.
    scale
        One scale; all if not given.
    out
        Folder with run directories.
    results
        Folder for the results, as for `undrift paper run`.
    """
    from undrift.papers.catalogue import items
    from undrift.papers.results import Runs

    if not out.is_dir():
        raise UndriftError(f"--out {out}: there is no such folder; give that of the runs")
    console, runs = Console(highlight=False), Runs(out)
    for one in items(item):
        for name in (FULL, *one.scales) if scale is None else (scale,):
            if one.kind == "experiment":
                most = max([one.seeds, *(found.seed + 1 for found in runs.trials.values())])
                chosen = one.cells(name, most, cells)
                collect_done(console, one, chosen, name, runs, results)
