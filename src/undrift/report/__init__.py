"""Reports: tables, figures for a paper and one interactive page, made from a run directory.

    from undrift.report import write_report
    write_report(Path("runs/digits"))        # report.html, figures/, table.md, table.csv

A report reads files only. The same run directory always gives the same bytes.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from undrift.config import UndriftError
from undrift.report.read import Run, read_run
from undrift.report.summary import Row, summarise
from undrift.report.tables import csv_table, markdown_table, rich_table

__all__ = [
    "Row",
    "Run",
    "csv_table",
    "markdown_table",
    "read_run",
    "require_extras",
    "rich_table",
    "summarise",
    "write_report",
]


def require_extras() -> None:
    """Refuse if a package is missing that only reports need."""
    for package in ("matplotlib", "plotly"):
        if find_spec(package) is None:
            raise UndriftError(
                f'a report needs {package}; install it with: pip install "undrift[report]"'
            )


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write report.html, figures/, table.md and table.csv; return the path of the page.

    run_dir    a directory that `undrift compare` wrote
    out        the directory to write into; the run directory itself if None
    """
    from undrift.report.figures import write_figures
    from undrift.report.page import render_page

    require_extras()
    run = read_run(run_dir)
    folder = Path(run_dir) if out is None else Path(out)
    if folder.suffix == ".html" or folder.is_file():
        raise UndriftError(f"out={str(folder)!r}: must be a directory, report.html is put into it")
    rows = summarise(run)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [path.relative_to(folder) for path in write_figures(run, folder / "figures")]
    _write(folder / "table.md", markdown_table(run, rows))
    _write(folder / "table.csv", csv_table(run, rows))
    return _write(folder / "report.html", render_page(run, rows, pictures))


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="\n")
    return path
