"""Tables of text on a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

WORD = re.compile(r"\S+ \[[^]]*\]|\S+")
"""what is not broken: a word, or a number and its interval"""


def show_table(console: Console, columns: Mapping[str, Sequence[str]]) -> None:
    """Print a table; on a terminal too narrow for its words, a block of lines for each row."""
    cells = [[head, *column] for head, column in columns.items()]
    widths = [max(len(word) for cell in some for word in WORD.findall(cell)) for some in cells]
    wanted = [max(map(len, some)) for some in cells]
    spare = console.width - sum(widths) - 2 * len(widths)
    wide = spare >= 0
    for _ in range(spare if widths else 0):  # to the column that is folded most
        k = max(range(len(widths)), key=lambda k: wanted[k] / widths[k])
        widths[k] += widths[k] < wanted[k]
    table = Table(box=None, pad_edge=False, show_header=wide)
    room = console.width - max(map(len, columns), default=0) - 2
    for head, width in zip(columns if wide else ("", ""), widths, strict=False):
        table.add_column(Text(head), overflow="fold", width=width if wide else None)
    for row in zip(*columns.values(), strict=True):
        if wide:
            table.add_row(*map(_wrapped, row, widths))
        else:
            first, *rest = zip(columns, row, strict=True)
            table.add_row("", Text(first[1], "bold"))
            for head, cell in rest:
                if cell:
                    table.add_row(Text(head), _wrapped(cell, room))
    console.print(table)


def _wrapped(cell: str, width: int) -> Text:
    """The cell in lines, with numbers beside their intervals."""
    lines: list[str] = []
    for word in WORD.findall(cell):
        if lines and len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return Text("\n".join(lines))
