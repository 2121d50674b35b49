"""metrics.jsonl as columns that grow with the file; rows that were read are not read again."""

from __future__ import annotations

import math
import os
from array import array
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, TypeAlias

from undrift.later import NDArray, np
from undrift.measure.quantities import LISTS
from undrift.runs.entries import NotARow, TrialKey, measured, parse_row
from undrift.runs.reading import broken, is_json, missing

Floats: TypeAlias = "NDArray[np.float64]"


class TrialColumns:
    """One algorithm on one seed: a column for each metric, in the order of the file."""

    def __init__(self) -> None:
        self._rounds = array("q")
        self._values: dict[str, array[float]] = {}
        self._lists = {name: (array("d"), array("q")) for name in LISTS}  # all values, lengths
        self.stopped: str | None = None
        """the rule that stopped the trial at its last row, if any did"""

    def add(self, t: int, values: Mapping[str, float], lists: Mapping[str, list[float]]) -> None:
        """Append a row; columns that it lacks, or that lacked it so far, have NaN there."""
        before = len(self._rounds)
        for name, value in values.items():
            column = self._values.get(name)
            if column is None:
                column = self._values[name] = array("d", [math.nan]) * before
            column.append(value)
        self._rounds.append(t)
        if len(values) < len(self._values):
            for name in self._values.keys() - values.keys():
                self._values[name].append(math.nan)
        for name, (flat, widths) in self._lists.items():
            flat.extend(lists[name])
            widths.append(len(lists[name]))

    def columns(self, end: float) -> tuple[NDArray[np.int64], dict[str, Floats], dict[str, Floats]]:
        """Rounds before `end` in order, with values and lists; the last row of a round counts."""
        rounds = np.array(self._rounds, dtype=np.int64)
        order = np.argsort(rounds, kind="stable")
        inner = rounds[order]
        kept = order[np.append(inner[1:] != inner[:-1], True) & (inner < end)]
        values = {name: np.frombuffer(column)[kept] for name, column in self._values.items()}
        sheets = {name: _sheet(flat, widths, kept) for name, (flat, widths) in self._lists.items()}
        return rounds[kept], values, {name: sheet for name, sheet in sheets.items() if sheet.size}


def _sheet(flat: array[float], widths: array[int], kept: NDArray[np.int64]) -> Floats:
    """Lists as rows, filled up with NaN to the longest."""
    lengths = np.array(widths, dtype=np.int64)
    width = int(lengths[kept].max(initial=0))
    if not width:
        return np.empty((len(kept), 0))
    sheet = np.full((len(lengths), int(lengths.max())), math.nan)
    sheet[np.arange(sheet.shape[1]) < lengths[:, None]] = flat
    return sheet[kept, :width]


class MetricsReader:
    """Reads metrics.jsonl, which may still grow: each `read` parses only the rows added since.

    A file that was replaced, cut or rewritten is read from the start: resuming a run does that
    when rows are to be measured again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._columns: defaultdict[TrialKey, TrialColumns] = defaultdict(TrialColumns)
        self._trials: set[TrialKey] = set()
        self._offset = self._lines = 0
        self._last = b""  # line read last, which must still be there when the file has grown
        self._file = (0, 0, 0)  # inode, size and time of the last change

    def read(self, trials: set[TrialKey]) -> Mapping[TrialKey, TrialColumns]:
        """The columns of each of these trials that has rows; a torn last line is left out."""
        try:
            with self.path.open("rb") as file:
                self._find_place(file, trials)
                for line in file:
                    if not line.endswith(b"\n") and not is_json(line):
                        break
                    self._add(line)
        except FileNotFoundError:
            raise missing(self.path) from None
        except OSError as error:
            self._forget()
            raise broken(self.path, f"cannot be read ({error})") from None
        except NotARow as error:
            line_number = self._lines + 1
            self._forget()
            raise broken(self.path, f"line {line_number}: {error}") from None
        return self._columns

    def _find_place(self, file: BinaryIO, trials: set[TrialKey]) -> None:
        """Seek to where the last read ended; to the start if the file did not just grow."""
        facts = os.fstat(file.fileno())
        inode, size, time = self._file
        another = facts.st_ino != inode or facts.st_size < size or trials != self._trials
        rewritten = facts.st_size == size and facts.st_mtime_ns != time
        file.seek(self._offset - len(self._last))
        if another or rewritten or file.read(len(self._last)) != self._last:
            self._forget()
            file.seek(0)
        self._trials, self._file = trials, (facts.st_ino, facts.st_size, facts.st_mtime_ns)

    def _add(self, line: bytes) -> None:
        if line.strip():
            row = parse_row(line, self._trials)
            trial = self._columns[row["algorithm"], row["seed"]]
            trial.add(row["round"], *measured(row))
            trial.stopped = str(row["stopped"]) if "stopped" in row else None
        self._lines += line.endswith(b"\n")
        self._offset += len(line)
        self._last = line
