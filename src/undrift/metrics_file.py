"""The rows of a run: JSON lines while it goes on, columns when a session ends."""

from __future__ import annotations

import io
import json
import math
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from undrift.config import UndriftError
from undrift.lock import replace_file, writing

Row = dict[str, Any]
Place = tuple[str, int]
"""A leg: algorithm and seed."""


class MetricsFile:
    """metrics.jsonl in a folder, one row an evaluation, and metrics.parquet beside it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "metrics.jsonl"
        self._known: dict[Place, dict[int, float]] = {}
        with writing(self.path):
            self.path.touch()
            text = self.path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            os.truncate(self.path, len(whole))  # without a row that was torn
        for line in whole.splitlines():
            self._note(self._parsed(line))
        with writing(self.path):
            self._file = self.path.open("ab")

    def rounds(self, place: Place) -> set[int]:
        """The rounds after which a leg was evaluated."""
        return set(self._known.get(place, ()))

    def seconds(self, place: Place) -> float:
        """The time that a leg had taken at its last evaluation."""
        return max(self._known.get(place, {}).values(), default=0.0)

    def add(self, row: Row) -> Row:
        """Write a row; returns it as written, without NaN and infinities."""
        row = {key: _plain(value) for key, value in row.items()}
        with writing(self.path):
            self._file.write(json.dumps(row).encode() + b"\n")
            self._file.flush()
        self._note(row)
        return row

    def sync(self) -> None:
        """Wait until all rows are on the disk."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def trim(self, place: Place, last: int) -> None:
        """Forget what a leg measured after a round; it will be measured again."""
        if max(self.rounds(place), default=0) <= last:
            return
        self._file.close()
        rows = ((line, self._parsed(line)) for line in self.path.read_bytes().splitlines(True))
        kept = [line for line, row in rows if _place(row) != place or row["round"] <= last]
        replace_file(self.path, b"".join(kept))
        self._known[place] = {t: s for t, s in self._known[place].items() if t <= last}
        with writing(self.path):
            self._file = self.path.open("ab")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def write_columns(self, run: str) -> None:
        """metrics.parquet, for whoever reads it with pandas, polars or duckdb."""
        if not self._known or find_spec("polars") is None:
            return
        import polars

        table = polars.read_ndjson(self.path, infer_schema_length=None)
        empty = polars.selectors.by_dtype(polars.Null).cast(polars.Float64)
        table = table.select(polars.lit(run).alias("run"), polars.all()).with_columns(empty)
        table.write_parquet(columns := io.BytesIO())
        replace_file(self.path.with_suffix(".parquet"), columns.getvalue())

    def _note(self, row: Row) -> None:
        self._known.setdefault(_place(row), {})[row["round"]] = row.get("seconds") or 0.0

    def _parsed(self, line: bytes) -> Row:
        try:
            row: Row = json.loads(line)
            _place(row), row["round"]
        except (ValueError, KeyError, TypeError):
            raise UndriftError(
                f"{self.path} holds a line that is no row, {line[:60]!r}; remove it, and what "
                "is missing then is computed again"
            ) from None
        return row


def _place(row: Row) -> Place:
    return row["algorithm"], row["seed"]


def _plain(value: Any) -> Any:
    """A value for JSON, null for what is not finite."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
