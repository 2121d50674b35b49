"""Facts as a small table for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def facts_table(title: str, facts: Mapping[str, object], note: str | None = None) -> str:
    """An HTML table with a row per fact, and a note below."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><caption>{escape(title)}</caption>{rows}</table>{below}"
