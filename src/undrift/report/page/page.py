"""Assembles the page: tables, interactive plots and settings in one HTML file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from undrift.report.page.panels import panel_data
from undrift.report.page.parts import render_parts
from undrift.report.read import Run
from undrift.report.summary import SummaryRow

SCRIPTS = ("theme.js", "curves.js", "charts.js", "clients.js", "controls.js")
"""scripts of the report and of the live page, in this order; each adds one that gets the data"""


def render_page(
    run: Run,
    rows: Sequence[SummaryRow],
    beside: Sequence[Path] = (),
    columns: Sequence[str] | None = None,
) -> str:
    """The page, with links to the files beside it. Everything that comes from runs is escaped."""
    parts = render_parts(run, rows, columns)
    return fill(
        asset("page.html"),
        {
            "title": parts["title"],
            "css": asset("page.css"),
            "view": fill(asset("view.html"), parts),
            "files": _files(beside),
            "footer": escape(f"Made by undrift {run.experiment.get('version', '')}".rstrip() + "."),
            "data": _script_json(panel_data(run)),
            "plotly": plotly(),
            "js": script(*map(asset, (*SCRIPTS, "report.js"))),
        },
    )


def fill(template: str, parts: Mapping[str, str]) -> str:
    """Replace each [[name]] by its part, in one pass: brackets inside a part are kept."""
    return re.sub(r"\[\[(\w+)\]\]", lambda found: parts[found[1]], template)


def asset(name: str) -> str:
    """The text of a file in this package."""
    return files("undrift.report.page").joinpath(name).read_text(encoding="utf-8")


def script(*texts: str) -> str:
    """Scripts in one function scope, so that their names are not global."""
    return '"use strict";\n(() => {\n' + "\n".join(texts) + "})();\n"


def plotly() -> str:
    """The source of plotly.js."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _script_json(value: Any) -> str:
    """JSON for a script element: without characters that could end it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _files(written: Sequence[Path]) -> str:
    shown = [f'<a href="{escape(path.as_posix())}">{escape(path.name)}</a>' for path in written]
    return "Beside this page: " + ", ".join(shown) + "." if shown else ""
