"""Reports: tables, figures for a paper and an interactive page, made from run directories.

    from undrift.report import write_report
    write_report(Path("runs/a"))        # report.html, figures/ and tables
    write_report(merge([read_run(Path("runs/a")), read_run(Path("runs/b"))]), Path("report"))

A report only reads files. The same run directories always give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from undrift.config import UndriftError, shortened
from undrift.report.csv_tables import csv_table, seeds_csv
from undrift.report.figures import FORMATS
from undrift.report.merge import merge
from undrift.report.read import Run, read_run
from undrift.report.summary import SummaryRow, summarise
from undrift.report.tables import (
    COLUMNS,
    latex_table,
    markdown_table,
)
from undrift.report.terminal import rich_seed_table, rich_table
from undrift.runs.layout import RunFile
from undrift.system.extras import lacking
from undrift.system.files import replace_file, writing

__all__ = [
    "COLUMNS",
    "FORMATS",
    "Run",
    "SummaryRow",
    "csv_table",
    "latex_table",
    "markdown_table",
    "merge",
    "read_run",
    "require_extras",
    "rich_seed_table",
    "rich_table",
    "seeds_csv",
    "summarise",
    "write_report",
]

EXTRAS = ("matplotlib", "plotly")


def require_extras(what: str = "a report", packages: Sequence[str] = EXTRAS) -> None:
    """Raise an error if an optional package that reports need is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise lacking(package, "report", what)


def write_report(
    run: Path | Run,
    out: Path | None = None,
    *,
    baseline: str | None = None,
    formats: Sequence[str] = ("svg", "png"),
    columns: Sequence[str] | None = None,
) -> Path:
    """Write report.html, figures/, table.md, table.tex, table.csv and seeds.csv.

    run        a run directory, or the result of `read_run` or `merge`
    out        the directory to write into; that of the run if None
    baseline   the algorithm to compare the others with, seed by seed
    formats    kinds of files for the figures
    columns    names of the columns of the main table, of `COLUMNS`; by default all

    Returns the path of the page.
    """
    from undrift.report.figures import write_figures
    from undrift.report.page.page import render_page

    require_extras()
    run = run if isinstance(run, Run) else read_run(run)
    folder = run.folder if out is None else Path(out)
    with writing(shortened(str(folder))):
        taken = folder.is_file()
    if folder.suffix == ".html" or taken:
        raise UndriftError(
            f"out={str(folder)!r}: must be a directory, {RunFile.REPORT} is put into it"
        )
    if not run.begun:
        raise UndriftError(f"{str(run.folder)!r} holds no evaluated round; run it first")
    rows = summarise(run, baseline)
    tables = {
        RunFile.TABLE_MD: markdown_table(run, rows, columns),
        RunFile.TABLE_TEX: latex_table(run, rows, columns),
        RunFile.TABLE_CSV: csv_table(run, rows),
        RunFile.SEEDS_CSV: seeds_csv(run, rows),
    }
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in tables.items():
            _write(folder / name, text)
        figures = write_figures(run, folder / RunFile.FIGURES, formats)
        beside = [*map(Path, tables), *(path.relative_to(folder) for path in figures)]
        return _write(folder / RunFile.REPORT, render_page(run, rows, beside, columns))


def _write(path: Path, text: str) -> Path:
    replace_file(path, text.encode(errors="replace"))  # JSON may hold lone surrogates
    return path
