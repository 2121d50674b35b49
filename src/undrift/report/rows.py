"""Rows: metrics.jsonl as columns that grow with the file; what was read is not read again."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from undrift.config import UndriftError
from undrift.measure.quantities import KEYS, LISTS, METRICS
from undrift.runs.entries import TrialKey
from undrift.runs.layout import RunFile
from undrift.runs.reading import broken, is_json, is_number, is_whole, missing, parsed

Floats = NDArray[np.float64]


class TrialColumns:
    """One algorithm on one seed: a column for each metric, in the order of the file."""

    def __init__(self) -> None:
        self._rounds = array("q")
        self._values: dict[str, array[float]] = {}
        self._lists = {name: (array("d"), array("q")) for name in LISTS}  # all values, lengths

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


class Rows:
    """The rows of a run directory, which may still be running.

    `read` goes on where the last one stopped. A file that was replaced, cut or rewritten since
    then is read anew: resuming a run does that to rows that are to be measured again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._trials: dict[TrialKey, TrialColumns] = {}
        self._known: tuple[set[str], set[int]] = set(), set()
        self._offset = self._lines = 0
        self._last = b""  # line that was read, which must still be there when the file has grown
        self._file = (0, 0, 0)  # inode, size and time of the last change

    def read(self, names: set[str], seeds: set[int]) -> Mapping[TrialKey, TrialColumns]:
        """(algorithm, seed) → what was measured; a torn last line is left out for now."""
        try:
            with self.path.open("rb") as file:
                self._find_place(file, (names, seeds))
                for line in file:
                    if not line.endswith(b"\n") and not is_json(line):
                        break
                    self._add(line)
        except FileNotFoundError:
            raise missing(self.path) from None
        except (OSError, UnicodeDecodeError) as error:
            self._forget()
            raise broken(self.path, f"cannot be read ({error})") from None
        except UndriftError:
            self._forget()
            raise
        return self._trials

    def _find_place(self, file: BinaryIO, known: tuple[set[str], set[int]]) -> None:
        """Go to where the last look ended; to the start if the file is no longer what it was."""
        facts = os.fstat(file.fileno())
        inode, size, time = self._file
        another = facts.st_ino != inode or facts.st_size < size or known != self._known
        rewritten = facts.st_size == size and facts.st_mtime_ns != time
        file.seek(self._offset - len(self._last))
        if another or rewritten or file.read(len(self._last)) != self._last:
            self._forget()
            file.seek(0)
        self._known, self._file = known, (facts.st_ino, facts.st_size, facts.st_mtime_ns)

    def _add(self, line: bytes) -> None:
        if line.strip():
            self._add_row(line.decode(), f"line {self._lines + 1}: ")
        self._lines += line.endswith(b"\n")
        self._offset += len(line)
        self._last = line

    def _add_row(self, line: str, where: str) -> None:
        path, (names, seeds) = self.path, self._known
        row = parsed(path, line, where)
        if not isinstance(row, dict):
            raise broken(path, f"{where}must hold an object")
        name, seed, t = row.get("algorithm"), row.get("seed"), row.get("round")
        if not isinstance(name, str) or name not in names:
            raise broken(path, f"{where}algorithm {name!r} is not in {RunFile.EXPERIMENT}")
        if not is_whole(seed) or seed not in seeds:
            raise broken(path, f"{where}seed {seed!r} is not in {RunFile.EXPERIMENT}")
        if not is_whole(t) or not 0 <= t < 2**53:
            raise broken(path, f"{where}round must be a whole number >= 0, got {t!r}")
        values = {metric: _value(path, where, metric, row.get(metric)) for metric in METRICS}
        more = row.keys() - KNOWN
        values |= {key: float(row[key]) for key in sorted(more) if is_number(row[key])}
        lists = {key: _list(path, where, key, row.get(key)) for key in LISTS}
        self._trials.setdefault((name, seed), TrialColumns()).add(t, values, lists)


KNOWN = {*METRICS, *LISTS, *KEYS}


def _value(path: Path, where: str, metric: str, value: Any) -> float:
    if type(value) is float and value - value == 0:  # the usual case, of millions: finite
        return value
    if value is None:
        return math.nan
    if not is_number(value, finite=False):
        raise broken(path, f"{where}{metric} must be a number or null, got {value!r}")
    return float(value) if is_number(value) else math.nan


def _list(path: Path, where: str, metric: str, values: Any) -> list[float]:
    if values is None:
        return []
    if not isinstance(values, list):
        raise broken(path, f"{where}{metric} must be a list of numbers or null, got {values!r}")
    return [_value(path, where, metric, value) for value in values]
