"""The rows of a run: metrics.jsonl while it runs, metrics.parquet when a session ends."""

from __future__ import annotations

import io
import json
import math
import os
import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from undrift.runs.entries import Row, TrialKey, read_row
from undrift.runs.layout import RunFile
from undrift.system.files import replace_file, writing


class Tally:
    """Index of rows: trial → round → seconds, and CRC-32 of the trial's rows up to that one."""

    def __init__(self) -> None:
        self._trials: dict[TrialKey, dict[int, tuple[float, int]]] = {}
        self._stops: dict[TrialKey, int] = {}

    def __len__(self) -> int:
        """Number of rows."""
        return sum(map(len, self._trials.values()))

    def add(self, row: Row, line: bytes) -> None:
        trial = self._trials.setdefault(_place(row), {})
        before = next(reversed(trial.values()))[1] if trial else 0
        trial.pop(row["round"], None)  # so that the newest row is last
        trial[row["round"]] = row.get("seconds") or 0.0, zlib.crc32(line, before)
        self._stops.pop(_place(row), None)
        if "stopped" in row:
            self._stops[_place(row)] = row["round"]

    def stop(self, place: TrialKey) -> int | None:
        """The round of a trial's last row, if a rule stopped the trial there."""
        return self._stops.get(place)

    def rounds(self, place: TrialKey) -> set[int]:
        """The rounds after which a trial was evaluated."""
        return set(self._trials.get(place, ()))

    def seconds(self, place: TrialKey) -> float:
        """The training time of a trial up to its last row."""
        return max((seconds for seconds, _ in self._trials.get(place, {}).values()), default=0.0)

    def sums(self, place: TrialKey, last: int) -> Row:
        """Of a trial's rows up to a round: the last one's round, their number and checksum."""
        trial = self._trials.get(place, {})
        rounds = [t for t in trial if t <= last]
        if not rounds:
            return {"last": 0, "count": 0, "crc32": "00000000"}
        return {"last": rounds[-1], "count": len(rounds), "crc32": f"{trial[rounds[-1]][1]:08x}"}


def read_rows(text: bytes, trials: Container[TrialKey]) -> Iterator[tuple[bytes, Row | None]]:
    """The lines of metrics.jsonl with their rows; None for a line that is not a row of the trials.

    A last line without its end, as a kill leaves it, is skipped.
    """
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        yield line, read_row(line, trials)


class MetricsFile:
    """metrics.jsonl, one row per evaluation, and metrics.parquet beside it.

    trials  that may have rows
    fitted  a row as it must be; None if it must go
    tally   index of the rows
    unfit   trials with rows that `fit` changes
    notes   damage that was found on opening
    """

    def __init__(
        self,
        folder: Path,
        trials: Container[TrialKey],
        fitted: Callable[[Row], Row | None] = lambda row: row,
    ) -> None:
        self.path, self.trials, self.fitted = folder / RunFile.METRICS, trials, fitted
        self.tally, self.notes, self.unfit = Tally(), list[str](), set[TrialKey]()
        with writing(self.path):
            self.path.touch()
            text = self.path.read_bytes()
            if not text.endswith(b"\n"):
                os.truncate(self.path, text.rfind(b"\n") + 1)  # cut a row that a kill left half
        others = []
        for line, row in read_rows(text, trials):
            if row is None:
                others.append(line)
            else:
                self.tally.add(row, line)
                if fitted(row) != row:
                    self.unfit.add(_place(row))
        if others:
            more = f" and {len(others) - 1} more" if others[1:] else ""
            self._set_aside(f"{others[0][:60]!r}{more}, not a row of this run")
        with writing(self.path):
            self._file = self.path.open("ab")
        if others:
            self._rewrite(lambda row: row)

    def add(self, row: Row) -> Row:
        """Write a row; returns it as written, without NaN and infinities."""
        row = as_written(row)
        line = json.dumps(row).encode()
        with writing(self.path):
            self._file.write(line + b"\n")
            self._file.flush()
        self.tally.add(row, line)
        return row

    def rows(self, place: TrialKey) -> list[Row]:
        """The rows of a trial."""
        return [row for _, row in read_rows(self.path.read_bytes(), {place}) if row is not None]

    def sync(self) -> None:
        """Wait until all rows are on disk (fsync)."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def trim(self, place: TrialKey, last: int) -> None:
        """Remove a trial's rows after a round; they will be measured again."""
        if max(self.tally.rounds(place), default=last) > last:
            self._rewrite(lambda row: row if _place(row) != place or row["round"] <= last else None)

    def fit(self) -> None:
        """Make all rows `fitted`."""
        self._rewrite(self.fitted)
        self.unfit = set()

    def sort(self, trials: Sequence[TrialKey]) -> None:
        """Put the rows of trials in this order, in which they are if all run one after another."""
        self._rewrite(lambda row: row, trials.index)

    def remove(self, place: TrialKey) -> None:
        """Remove all rows of a trial whose checksum is wrong: it does not say which are damaged."""
        if self.tally.rounds(place):
            self._set_aside(f"rows of {place[0]}, seed {place[1]}, whose checksum is wrong")
            self.trim(place, -1)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def write_columns(self, run: str) -> str:
        """Write metrics.parquet, if polars is installed; returns the error, "" if there is none."""
        if not self.tally or find_spec("polars") is None:
            return ""
        try:
            columns = _columns(self.path.read_bytes(), run)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in polars is not an Exception
            return f"{RunFile.COLUMNS} is not written ({type(error).__name__}: {error})"
        replace_file(self.path.parent / RunFile.COLUMNS, columns)
        return ""

    def _rewrite(
        self, change: Callable[[Row], Row | None], rank: Callable[[TrialKey], int] | None = None
    ) -> None:
        """Rewrite the file with changed rows, without those that become None, in order of rank."""
        self._file.close()
        text, kept = self.path.read_bytes(), list[tuple[bytes, Row]]()
        for line, old in read_rows(text, self.trials):
            if old is not None and (row := change(old)) is not None:
                kept.append((line if row == old else json.dumps(row).encode(), row))
        if rank:
            kept.sort(key=lambda one: rank(_place(one[1])))
        content = b"".join(line + b"\n" for line, _ in kept)
        if content != text:
            replace_file(self.path, content)
        self.tally = Tally()
        for line, row in kept:
            self.tally.add(row, line)
        with writing(self.path):
            self._file = self.path.open("ab")

    def _set_aside(self, reason: str) -> None:
        """Keep a copy of the file as it was found, before rows are removed."""
        copy = self.path.with_name(f"{self.path.name}.unused")
        if not self.notes:
            replace_file(copy, self.path.read_bytes())
        self.notes.append(
            f"{self.path} held {reason}: removed, to be measured again; a copy is in {copy.name}"
        )


def _columns(rows: bytes, run: str) -> bytes:
    """Rows as Parquet. Polars gets them as bytes: it would treat a path as a glob pattern."""
    import polars

    table = polars.read_ndjson(io.BytesIO(rows), infer_schema_length=None)
    empty = polars.selectors.by_dtype(polars.Null).cast(polars.Float64)
    table = table.select(polars.lit(run).alias("run"), polars.all()).with_columns(empty)
    table.write_parquet(columns := io.BytesIO())
    return columns.getvalue()


def as_written(row: Row) -> Row:
    """A row as it is in the file, with None for NaN and infinities."""
    return {key: _plain(value) for key, value in row.items()}


def _place(row: Row) -> TrialKey:
    return row["algorithm"], row["seed"]


def _plain(value: Any) -> Any:
    """A value for JSON, with null for NaN and infinities."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
