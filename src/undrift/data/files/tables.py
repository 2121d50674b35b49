"""Tables of features and labels, from CSV and Parquet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from undrift.config import UndriftError, unknown
from undrift.data.files.formats import reading
from undrift.data.text.words import lines
from undrift.system.extras import require

BLOCK = 65_536
"""CSV rows converted at a time; bounds memory."""

Table = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Inputs (n, features), targets, and client ids."""


def read_table(
    path: Path, target: str, client: str | None = None, features: Sequence[str] | None = None
) -> Table:
    """Read these columns of a table; `features` are by default all the others."""
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parquet(path, target, client, features)
    rows = csv.reader(lines(path, "utf-8-sig"))
    with reading(path, "CSV"):
        header = next(rows, [])
        wanted = _chosen(path, header, target, client, features)
        places = [header.index(name) for name in wanted]
        blocks: list[np.ndarray] = []
        labels: list[str] = []
        owners: list[str] = []
        while block := list(islice(rows, BLOCK)):
            start = len(labels) + 2
            for i, row in enumerate(block, start):
                if len(row) != len(header):
                    raise UndriftError(
                        f"{path}, row {i}: expected {len(header)} fields, found {len(row)}"
                    )
            cells = [[row[place] for place in places] for row in block]
            blocks.append(_numbers(path, wanted, cells, start))
            labels += [row[header.index(target)] for row in block]
            owners += [row[header.index(client)] for row in block] if client else []
    if not labels:
        raise UndriftError(f"{path}: the table has no rows")
    for name, column in ((target, labels), (client, owners)):
        if "" in column:
            raise UndriftError(f"{path}, row {column.index('') + 2}, column {name}: it is empty")
    return np.concatenate(blocks), _labels(labels), np.array(owners) if client else None


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
    return list(wanted)


def _numbers(path: Path, names: Sequence[str], cells: list[list[str]], start: int) -> np.ndarray:
    try:
        return np.array(cells, dtype=np.float32)
    except ValueError:
        for i, row in enumerate(cells, start):
            for name, cell in zip(names, row, strict=True):
                try:
                    float(cell)
                except ValueError:
                    raise UndriftError(
                        f"{path}, row {i}, column {name}: {cell[:40]!r} is not a number; list the "
                        "numeric columns in features"
                    ) from None
        raise


def _labels(cells: list[str]) -> np.ndarray:
    """Integers if all are, else floats if all are, else strings."""
    for kind in (np.int64, np.float64):
        try:
            return np.array(cells, dtype=kind)
        except (ValueError, OverflowError):
            continue
    return np.array(cells)


def _parquet(path: Path, target: str, client: str | None, features: Sequence[str] | None) -> Table:
    use = "pyarrow.parquet" if find_spec("pyarrow") and not find_spec("polars") else "polars"
    package = require(use, "data", path)
    with reading(path, "Parquet"):
        if package.__name__ == "polars":
            header = list(package.read_parquet_schema(path))
        else:
            header = list(package.read_schema(path).names)
        wanted = _chosen(path, header, target, client, features)
        names = list(dict.fromkeys([*wanted, target, *([client] if client else [])]))
        read = package.read_parquet if package.__name__ == "polars" else package.read_table
        table = read(path, columns=names)
        columns: dict[str, Any] = {name: np.asarray(table[name].to_numpy()) for name in names}
        strange = [name for name in wanted if columns[name].dtype.kind not in "biuf"]
        if strange:
            raise UndriftError(
                f"{path}, column {strange[0]}: {columns[strange[0]].dtype} is not a number; list "
                "the numeric columns in features"
            )
        for name in (target, *([client] if client else [])):
            empty = [i for i, value in enumerate(columns[name].tolist()) if value is None]
            if empty:
                raise UndriftError(f"{path}, row {empty[0] + 1}, column {name}: it is empty")
        inputs = np.stack([columns[name].astype(np.float32) for name in wanted], axis=1)
    return inputs, _text(columns[target]), _text(columns[client]) if client else None


def _text(column: np.ndarray) -> np.ndarray:
    return column.astype(str) if column.dtype.kind == "O" else column
