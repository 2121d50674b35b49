"""Columns of a table as inputs of a model: numbers are standardised, texts one-hot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from undrift.config import UndriftError
from undrift.data.files.tables import WITHOUT, Columns
from undrift.later import np

FEW = 100
"""Different values up to which texts are always categories, and whole numbers may be classes."""

MOST = 1000
"""Categories of a column, at most: each is an input."""


@dataclass(frozen=True)
class Column:
    """How a column becomes inputs: (value - mean) / sd, or for texts one input per category.

    sd          of the training rows; 0 if they are all equal: then the input is 0
    categories  of the training rows, in sorted order; any other text is 0 in all of them
    """

    name: str
    mean: float = 0.0
    sd: float = 1.0
    categories: tuple[str, ...] = ()

    @classmethod
    def fit(cls, name: str, cells: np.ndarray, scale: bool = True) -> Column:
        """From the cells of the training rows."""
        if cells.dtype.kind == "O":
            return cls(name, categories=_categories(name, cells))
        if not scale or cells.dtype.kind == "b":
            return cls(name)
        constant = cells.min() == cells.max()  # where rounding would leave a tiny deviation
        return cls(name, float(cells.mean()), 0.0 if constant else float(cells.std()))

    @property
    def width(self) -> int:
        """The number of inputs."""
        return len(self.categories) or 1

    def inputs(self, cells: np.ndarray) -> np.ndarray:
        """Inputs (rows, width), float32."""
        if (cells.dtype.kind == "O") != bool(self.categories):
            raise UndriftError(
                f"column {self.name}: its cells are numbers in one table and texts in the other"
            )
        made = np.zeros((len(cells), self.width), dtype=np.float32)
        if self.categories:
            numbers = {category: i for i, category in enumerate(self.categories)}
            places = np.array([numbers.get(cell, -1) for cell in cells], dtype=np.int64)
            known = np.flatnonzero(places >= 0)
            made[known, places[known]] = 1
        elif self.sd:
            made[:, 0] = (cells.astype(np.float64) - self.mean) / self.sd
        return made


def _categories(name: str, cells: np.ndarray) -> tuple[str, ...]:
    found = sorted(set(cells))
    if len(found) > MOST or (len(found) > FEW and 2 * len(found) > len(cells)):
        raise UndriftError(
            f"column {name}: {len(found)} different texts in {len(cells)} training rows are too "
            f"many for categories; group them, {WITHOUT}"
        )
    return tuple(found)


def encode(columns: Sequence[Column], cells: Mapping[str, np.ndarray]) -> np.ndarray:
    """The inputs of all columns side by side."""
    return np.concatenate([column.inputs(cells[column.name]) for column in columns], axis=1)


def whole_classes(targets: np.ndarray) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Targets that are whole numbers: classes in their order if few differ, else floats."""
    values, places = np.unique(targets, return_inverse=True)
    if len(values) > FEW or 2 * len(values) > len(targets):
        return targets.astype(np.float64), None
    return places, tuple(map(str, values.tolist()))


def describe(columns: Sequence[Column], train: Columns, test: Columns, scale: bool) -> str:
    """What became of the columns, in words."""
    texts = [column for column in columns if column.categories]
    flags = sum(cells.dtype.kind == "b" for cells in train.features.values())
    numbers = len(columns) - len(texts) - flags
    constant = sum(column.sd == 0 for column in columns)
    said = [_count(len(columns), "column")]
    if texts:
        width = _count(sum(column.width for column in texts), "category", "categories")
        said.append(f"{len(texts)} of them text (one-hot, {width})")
    said += [f"{flags} true or false (1 or 0)"] if flags else []
    if numbers:
        said.append(f"{numbers} standardised" if scale else f"{_count(numbers, 'number')} unscaled")
    said += [f"{constant} the same in all training rows (0)"] if constant else []
    unknown = sum(len({*test.features[one.name]}.difference(one.categories)) for one in texts)
    if unknown:
        new = _count(unknown, "category", "categories")
        said.append(f"{new} only in test rows (all zeros)")
    return ", ".join(said)


def describe_targets(target: str, classes: int | None, client: str | None, train: Columns) -> str:
    """What is predicted, and who the clients are, in words."""
    kind = "a number, not scaled"
    if classes is not None:
        kind = f"one of {_count(classes, 'class', 'classes')}"
    if train.owners is None:
        return f"target {target} is {kind}"
    return f"target {target} is {kind}, clients by {client} ({len(np.unique(train.owners))})"


def _count(number: int, one: str, several: str = "") -> str:
    """`1 column`, `2 columns`."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"
