"""The rows of a run: metrics.jsonl while it runs, metrics.parquet when a session ends."""

from __future__ import annotations

import io
import json
import math
import os
import zlib
from collections.abc import Callable, Container, Iterator
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

    def __len__(self) -> int:
        """Number of rows."""
        return sum(map(len, self._trials.values()))

    def add(self, row: Row, line: bytes) -> None:
        trial = self._trials.setdefault(_place(row), {})
        before = next(reversed(trial.values()))[1] if trial else 0
        trial.pop(row["round"], None)  # so that the newest row is last
        trial[row["round"]] = row.get("seconds") or 0.0, zlib.crc32(line, before)

    def cut(self, place: TrialKey, last: int) -> None:
        """Remove the rows of a trial after round `last`."""
        self._trials[place] = {t: told for t, told in self._trials[place].items() if t <= last}

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
    tally   index of the rows
    notes   damage that was found on opening
    """

    def __init__(self, folder: Path, trials: Container[TrialKey]) -> None:
        self.path, self.trials = folder / RunFile.METRICS, trials
        self.tally, self.notes = Tally(), list[str]()
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
        if others:
            more = f" and {len(others) - 1} more" if others[1:] else ""
            self._set_aside(f"{others[0][:60]!r}{more}, not a row of this run")
            self._keep(lambda row: True)
        with writing(self.path):
            self._file = self.path.open("ab")

    def add(self, row: Row) -> Row:
        """Write a row; returns it as written, without NaN and infinities."""
        row = {key: _plain(value) for key, value in row.items()}
        line = json.dumps(row).encode()
        with writing(self.path):
            self._file.write(line + b"\n")
            self._file.flush()
        self.tally.add(row, line)
        return row

    def sync(self) -> None:
        """Wait until all rows are on disk (fsync)."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def trim(self, place: TrialKey, last: int) -> None:
        """Remove a trial's rows after a round; they will be measured again."""
        if max(self.tally.rounds(place), default=last) > last:
            self._file.close()
            self._keep(lambda row: _place(row) != place or row["round"] <= last)
            self.tally.cut(place, last)
            with writing(self.path):
                self._file = self.path.open("ab")

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

    def _keep(self, wanted: Callable[[Row], bool]) -> None:
        """Rewrite the file with the wanted rows only."""
        rows = read_rows(self.path.read_bytes(), self.trials)
        kept = [line + b"\n" for line, row in rows if row is not None and wanted(row)]
        replace_file(self.path, b"".join(kept))

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


def _place(row: Row) -> TrialKey:
    return row["algorithm"], row["seed"]


def _plain(value: Any) -> Any:
    """A value for JSON, with null for NaN and infinities."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
