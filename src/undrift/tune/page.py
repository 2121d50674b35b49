"""The page of a study or sweep: a table, what it means, and figures, in one HTML file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from undrift.report.drawing import Draw, styled
from undrift.report.page.page import asset
from undrift.system.files import replace_file

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
WIDTH, HEIGHT = 3.2, 2.6
"""inches of one panel"""


@dataclass(frozen=True)
class Figure:
    """A figure of a page: panels side by side."""

    title: str
    caption: str
    panels: Sequence[Draw]
    wide: float = WIDTH


def write_page(
    path: Path,
    title: str,
    columns: dict[str, list[str]],
    notes: Sequence[str],
    figures: Sequence[Figure],
) -> None:
    """Write the page. Everything that comes from settings is escaped."""
    heads = "".join(f"<th>{escape(head)}</th>" for head in columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>\n"
        for cells in zip(*columns.values(), strict=True)
    )
    said = "".join(f'<p class="note">{escape(note)}</p>\n' for note in notes)
    drawn = "".join(
        f"<h2>{escape(one.title)}</h2>\n<p>{escape(one.caption)}</p>\n"
        f'<div class="study">{_svg(one)}</div>\n'
        for one in figures
    )
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="undrift">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{asset("page.css")}
th, td {{ text-align: left; white-space: normal; }}
p.note {{ margin: 0.5em 0; }}
.study {{ background: #fff; overflow-x: auto; }}
</style>
</head>
<body>
<h1>{escape(title)}</h1>
<div class="scroll"><table><thead><tr>{heads}</tr></thead>
<tbody>
{rows}</tbody></table></div>
{said}{drawn}</body>
</html>
"""
    replace_file(path, text.encode(errors="replace"))


def log_scale(ax: Any, which: str) -> None:
    """A logarithmic axis with plain numbers: our style does not set formulas."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    getattr(ax, f"set_{which}scale")("log")
    axis = getattr(ax, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1, 3), numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _svg(one: Figure) -> str:
    from matplotlib.figure import Figure as Canvas

    columns = min(len(one.panels), 3)
    lines = -(-len(one.panels) // columns)
    with styled():
        canvas = Canvas(figsize=(one.wide * columns, HEIGHT * lines), layout="constrained")
        axes = list(canvas.subplots(lines, columns, squeeze=False).flat)
        for ax, draw in zip(axes, one.panels, strict=False):
            draw(ax)
        for ax in axes[len(one.panels) :]:
            ax.set_axis_off()
        file = io.StringIO()
        canvas.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]
