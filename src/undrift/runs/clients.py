"""clients.csv and validation.csv: the results of each client at the end of each trial."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.runs.entries import TrialKey
from undrift.system.files import replace_file, writing

KEYS = ("algorithm", "seed")


def write_clients(path: Path, place: TrialKey, rows: Sequence[dict[str, Any]]) -> None:
    """Add a trial's rows to one of the files, in place of those that it had before."""
    key = dict(zip(KEYS, place, strict=True))
    kept = [row for row in read_clients(path) if (row["algorithm"], row["seed"]) != _text(place)]
    out = io.StringIO()
    table = csv.DictWriter(out, [*KEYS, *rows[0]], extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows([*kept, *(key | row for row in rows)])
    replace_file(path, out.getvalue().encode())


def read_clients(path: Path) -> list[dict[str, str]]:
    """The rows of a file as text; none if there is no file, or it is not what we wrote."""
    with writing(path):
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
    except csv.Error:
        return []
    return [row for row in rows if all(row.get(key) is not None for key in KEYS)]


def _text(place: TrialKey) -> tuple[str, str]:
    return place[0], str(place[1])
