"""Page: one self-contained HTML file with the table, interactive curves and the settings."""

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

SCRIPTS = ("theme.js", "curves.js", "charts.js", "controls.js")
"""what draws the page, in this order; the report and the live page each add how they get data"""


def render_page(run: Run, rows: Sequence[SummaryRow], beside: Sequence[Path] = ()) -> str:
    """The page as text, with links to files beside it. All that comes from runs is escaped."""
    parts = render_parts(run, rows)
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
    """Put each part in its place, in one pass: brackets inside a part are left alone."""
    return re.sub(r"\[\[(\w+)\]\]", lambda found: parts[found[1]], template)


def asset(name: str) -> str:
    """The text of a file beside this one."""
    return files("undrift.report.page").joinpath(name).read_text(encoding="utf-8")


def script(*texts: str) -> str:
    """Scripts as one, whose names no other script sees."""
    return '"use strict";\n(() => {\n' + "\n".join(texts) + "})();\n"


def plotly() -> str:
    """The script that plots."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element which holds it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _files(written: Sequence[Path]) -> str:
    shown = [f'<a href="{escape(path.as_posix())}">{escape(path.name)}</a>' for path in written]
    return "Beside this page: " + ", ".join(shown) + "." if shown else ""
