"""A user's own table as a data set that the command line and files can name."""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from undrift.config import Config, UndriftError, flag, text
from undrift.data.files.tables import column_names
from undrift.data.source import Source

ENDINGS = (".csv", ".csv.gz", ".parquet", ".pq")


@dataclass(frozen=True)
class Table(Config):
    """Your own table: CSV with a header, gzipped or not, or Parquet; every row is a sample.

    path      relative to the current folder
    target    column to predict: texts are classes, and whole numbers if at most 100, and at most
              half as many as rows, differ; other numbers are values to predict
    client    column of the clients, for the partition `Natural()`
    features  columns of the inputs; by default all others
    test      share of the rows to test on, of each client's, the same for every seed; or the path
              of another table
    scale     standardise numbers by mean and standard deviation of all training rows

    Texts are categories, one-hot; true and false are 1 and 0. Empty cells are refused.
    """

    path: str = text()
    target: str = text()
    _: KW_ONLY
    client: str | None = text(None, optional=True)
    features: tuple[str, ...] | None = None
    test: float | str = 0.2
    scale: bool = flag(True)

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.features
        if names is not None:
            if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
                self.refuse("features must be a list of columns", features=names)
            object.__setattr__(self, "features", tuple(names))
        share = isinstance(self.test, int | float) and 0 <= self.test < 1
        if not share and not (isinstance(self.test, str) and self.test):
            self.refuse("test must be a share >= 0 and < 1, or the path of a table", test=self.test)

    def load(self, seed: int) -> Source:
        paths = [self.path, *([self.test] if isinstance(self.test, str) else [])]
        return _read(self, tuple(map(_version, paths)))


def _version(path: str) -> tuple[Path, int, int]:
    """What changes when a file does."""
    try:
        facts = Path(path).stat()
    except OSError as error:
        raise UndriftError(
            f"{path}: {error.strerror} in {Path.cwd()}; paths of tables are relative to the "
            "current folder"
        ) from None
    return Path(path).resolve(), facts.st_size, facts.st_mtime_ns


@functools.lru_cache(maxsize=1)
def _read(table: Table, versions: object) -> Source:
    from undrift.data.own import from_table  # which imports torch

    return from_table(
        table.path,
        target=table.target,
        client=table.client,
        features=table.features,
        test=table.test,
        scale=table.scale,
    )


def table_file(path: str, target: str | None, client: str | None) -> Table:
    """The data set of a file; without a target, an error that lists the columns."""
    if target is None:
        _version(path)
        raise UndriftError(
            f"{path}: say which column to predict with --target-column NAME, or with "
            f"Table({path!r}, target='NAME'); there are {', '.join(column_names(Path(path)))}"
        )
    return Table(path, target, client=client)
