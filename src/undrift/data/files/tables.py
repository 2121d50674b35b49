"""Tables of features and labels, from CSV and Parquet."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from undrift.config import UndriftError, unknown
from undrift.data.files.formats import reading
from undrift.data.text.words import lines
from undrift.later import np
from undrift.system.extras import require

BLOCK = 65_536
"""CSV rows converted at a time; bounds memory."""

WITHOUT = "or leave the column out by naming the others: features=[...]"


class Columns(NamedTuple):
    """Columns of a table.

    features  by name: numbers (float64), booleans, or texts (objects)
    targets   integers, floats or texts
    owners    client ids
    """

    features: dict[str, np.ndarray]
    targets: np.ndarray
    owners: np.ndarray | None

    def rows(self, chosen: np.ndarray) -> Columns:
        """The rows of a mask."""
        features = {name: cells[chosen] for name, cells in self.features.items()}
        owners = None if self.owners is None else self.owners[chosen]
        return Columns(features, self.targets[chosen], owners)


def read_table(
    path: Path, target: str, client: str | None = None, features: Sequence[str] | None = None
) -> Columns:
    """Read these columns of a table; `features` are by default all the others."""
    if _is_parquet(path):
        return _parquet(path, target, client, features)
    header = column_names(path)
    rows = csv.reader(lines(path, "utf-8-sig"))
    with reading(path, "CSV"):
        next(rows)
        places = {n: header.index(n) for n in _chosen(path, header, target, client, features)}
        blocks: dict[str, list[np.ndarray]] = {name: [] for name in places}
        labels: list[str] = []
        owners: list[str] = []
        while block := list(islice(rows, BLOCK)):
            for i, row in enumerate(block, len(labels) + 2):
                if len(row) != len(header):
                    raise UndriftError(
                        f"{path}, row {i}: expected {len(header)} fields, found {len(row)}"
                    )
            for name, place in places.items():
                blocks[name].append(_cells([row[place] for row in block]))
            labels += [row[header.index(target)] for row in block]
            owners += [row[header.index(client)] for row in block] if client else []
    if not labels:
        raise UndriftError(f"{path}: the table has no rows")
    return Columns(
        {name: _csv_column(path, name, some) for name, some in blocks.items()},
        _special(path, target, _labels(labels), first=2),
        _special(path, client, np.array(owners), first=2) if client else None,
    )


def column_names(path: Path) -> list[str]:
    """The names of a table's columns."""
    if not _is_parquet(path):
        with reading(path, "CSV"):
            header = next(csv.reader(lines(path, "utf-8-sig")), [])
        if not header:
            raise UndriftError(f"{path}: it is empty; expected a line with the names of columns")
        if len(header) == 1 and (found := re.search("[;\t|]", header[0])):
            raise UndriftError(f"{path}: columns are separated by {found[0]!r}; use commas")
        return header
    package = _parquet_reader(path)
    with reading(path, "Parquet"):
        if package.__name__ == "polars":
            return list(package.read_parquet_schema(path))
        return list(package.read_schema(path).names)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _chosen(
    path: Path,
    header: Sequence[str],
    target: str,
    client: str | None,
    features: Sequence[str] | None,
) -> list[str]:
    """The names of the features."""
    special = (target, client) if client else (target,)
    wanted = [name for name in header if name not in special] if features is None else features
    for name in (*special, *wanted):
        if name not in header:
            raise UndriftError(f"{path}: {unknown('column', str(name), header)}")
        if header.count(name) > 1:
            raise UndriftError(f"{path}: {header.count(name)} columns are called {name!r}")
    if not wanted:
        raise UndriftError(f"{path}: no column is left for features")
    if target in wanted:
        raise UndriftError(f"{path}: the target {target} cannot be one of the features")
    return list(wanted)


def _cells(cells: list[str]) -> np.ndarray:
    """Numbers if all cells are, else texts."""
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.array([sys.intern(cell) for cell in cells], dtype=object)


def _csv_column(path: Path, name: str, blocks: list[np.ndarray]) -> np.ndarray:
    """A column whose cells are all numbers, all true or false, or texts."""
    found = _feature(path, name, np.concatenate(blocks), first=2)
    if found.dtype.kind != "O":
        return found
    numeric = {cell: _is_number(cell) for cell in set(found)}
    numbers = [numeric[cell] for cell in found]
    if 2 * sum(numbers) >= len(numbers):
        row = numbers.index(False)
        raise UndriftError(
            f"{path}, row {row + 2}, column {name}: {found[row][:40]!r} is not a number, but most "
            f"of the column are; mend it, put a letter before each number of a category, {WITHOUT}"
        )
    return found


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _feature(path: Path, name: str, cells: np.ndarray, first: int) -> np.ndarray:
    """Numbers, booleans or texts without gaps; `first` is the number of the first row."""
    _refuse_gaps(path, name, cells, first, f"fill it in, drop the row, {WITHOUT}")
    if cells.dtype.kind == "b":
        return cells
    if cells.dtype.kind in "iuf":
        return cells.astype(np.float64)
    texts = cells.astype(object)
    if strange := {type(one) for one in texts} - {str, float}:
        kind = cells.dtype if cells.dtype.kind != "O" else strange.pop().__name__
        raise UndriftError(
            f"{path}, column {name}: {kind} is neither a number nor a text; convert it, {WITHOUT}"
        )
    if {str(one).lower() for one in set(texts)} <= {"true", "false"}:
        return np.array([one.lower() == "true" for one in texts])
    return texts


def _refuse_gaps(path: Path, name: str, cells: np.ndarray, first: int, advice: str) -> None:
    """Refuse cells that are empty, and numbers that are not finite."""
    if cells.dtype.kind in "biuf":
        wrong, what = ~np.isfinite(cells), "the number is missing or infinite"
    else:
        wrong = np.array([one is None or one == "" or str(one).isspace() for one in cells])
        what = "it is empty"
    if wrong.any():
        where = f"{path}, row {int(wrong.argmax()) + first}, column {name}"
        some = f" ({wrong.sum()} of {len(wrong)} rows)" if wrong.sum() > 1 else ""
        raise UndriftError(f"{where}: {what}{some}; {advice}")


def _special(path: Path, name: str, cells: np.ndarray, first: int) -> np.ndarray:
    """Targets or client ids, without gaps."""
    _refuse_gaps(path, name, cells, first, "fill it in, or drop the row")
    return cells.astype(str) if cells.dtype.kind == "O" else cells


def _labels(cells: list[str]) -> np.ndarray:
    """Integers if all are, else floats if all are, else strings."""
    for kind in (np.int64, np.float64):
        try:
            return np.array(cells, dtype=kind)
        except (ValueError, OverflowError):
            continue
    return np.array(cells)


def _parquet_reader(path: Path) -> Any:
    use = "pyarrow.parquet" if find_spec("pyarrow") and not find_spec("polars") else "polars"
    return require(use, "data", path)


def _parquet(
    path: Path, target: str, client: str | None, features: Sequence[str] | None
) -> Columns:
    package = _parquet_reader(path)
    wanted = _chosen(path, column_names(path), target, client, features)
    with reading(path, "Parquet"):
        names = list(dict.fromkeys([*wanted, target, *([client] if client else [])]))
        read = package.read_parquet if package.__name__ == "polars" else package.read_table
        table = read(path, columns=names)
        columns: dict[str, Any] = {name: np.asarray(table[name].to_numpy()) for name in names}
        if not len(columns[target]):
            raise UndriftError(f"{path}: the table has no rows")
        return Columns(
            {name: _feature(path, name, columns[name], first=1) for name in wanted},
            _special(path, target, columns[target], first=1),
            _special(path, client, columns[client], first=1) if client else None,
        )
