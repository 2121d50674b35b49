"""Tables of text fit the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from undrift.cli.tables import show_table

COLUMNS = {
    "claim": ["AdaBest, beta=auto > AdaBest", "AdaBest > FedDyn"],
    "difference": ["+0.25 [-0.24, +0.74]", ""],
    "values": ["78.28 / 71.78 [67.97, 75.30] ≁", "-"],
    "verdict": ["cannot tell ?", "not run –"],
}


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_numbers_stay_with_their_intervals(width: int) -> None:
    out = io.StringIO()
    show_table(Console(file=out, width=width), COLUMNS)
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    for number in "+0.25 [-0.24, +0.74]", "71.78 [67.97, 75.30]":
        assert sum(number in line for line in lines) == 1
    for word in " ".join(cell for column in COLUMNS.values() for cell in column).split():
        assert any(word in line for line in lines)


def test_there_may_be_no_columns() -> None:
    out = io.StringIO()
    show_table(Console(file=out), {})
    assert not out.getvalue().strip()
