"""Your own data: arrays, a torch Dataset, a table, or a Hugging Face dataset.

Each function returns a `Source`, which can be used in place of a data set:
`federate(from_arrays(x, y, client_ids=users), Natural(), seed=0)`.

inputs      floats become float32; bytes stay bytes, and are scaled to [0, 1] in each batch unless
            there is a `transform`; other integers, such as token ids, become int64
targets     integers are classes from 0 to `classes` - 1 (by default, to the largest); strings are
            classes in alphabetical order; floats are values to predict, float32
client_ids  the owner of each sample, integers or strings, for `Natural`
test        the share to test on, 0 <= test < 1, drawn at random with `seed`; with client_ids, of
            each client's samples, but none of a client with one sample; or test data of the same
            kind
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.config import UndriftError
from undrift.config.calls import OwnCall
from undrift.data.encoding import Column, describe, describe_targets, encode, whole_classes
from undrift.data.federated import Transform
from undrift.data.files.tables import read_table
from undrift.data.partition.split import training_mask
from undrift.data.source import Source


@dataclass(frozen=True)
class OwnData(OwnCall):
    """A user's own function that returns a `Source`, a data set, or arrays for `from_arrays`."""

    offers = ("seed",)

    def load(self, seed: int) -> Source:
        made = self.call(seed=seed)
        if isinstance(made, tuple) and len(made) in (2, 3):
            return from_arrays(*made)
        if not hasattr(made, "load"):
            raise UndriftError(
                f"{self!r} returned {type(made).__name__}; return undrift.data.own.from_arrays(...)"
            )
        source: Source = made.load(seed)
        return source


def from_arrays(
    inputs: Any,
    targets: Any,
    client_ids: Any = None,
    *,
    test: float | tuple[Any, Any] = 0.2,
    classes: int | None = None,
    transform: Transform | None = None,
    seed: int = 0,
) -> Source:
    """Samples in NumPy arrays, tensors or lists; `test` may be a pair (inputs, targets)."""
    x, y = _inputs(inputs), _column(targets)
    owners = None if client_ids is None else _column(client_ids)
    for name, array in (("targets", y), ("client_ids", owners)):
        if array is not None and (not array.ndim or len(array) != len(x)):
            found = len(array) if array.ndim else "one"
            raise UndriftError(f"{name}: {found} for {len(x)} inputs; give one per input")
    if owners is not None and (owners.ndim != 1 or owners.dtype.kind not in "biuUS"):
        raise UndriftError(
            f"client_ids: expected one integer or string per sample, found {owners.dtype} of "
            f"shape {owners.shape}"
        )
    if not len(x):
        raise UndriftError("inputs: there are no samples")
    if isinstance(test, tuple | list):
        if len(test) != 2:
            raise UndriftError(f"test: expected a pair (inputs, targets), found {len(test)} parts")
        x2, y2 = _inputs(test[0]), _column(test[1])
        if len(x2) != len(y2) or x2.shape[1:] != x.shape[1:] or x2.dtype != x.dtype:
            raise UndriftError(
                f"test: {len(x2)} inputs {x2.dtype} of shape {tuple(x2.shape[1:])} and {len(y2)} "
                f"targets; training inputs are {x.dtype} of shape {tuple(x.shape[1:])}"
            )
        if y2.shape[1:] != y.shape[1:] or _kind(y2) != _kind(y):
            raise UndriftError(
                f"test: targets are {y2.dtype} of shape {y2.shape[1:]}, training targets "
                f"{y.dtype} of shape {y.shape[1:]}"
            )
    else:
        train = _training(len(x), owners, test, seed)
        x, y, x2, y2 = x[train], y[train], x[~train], y[~train]
        owners = None if owners is None else owners[train]
    y, y2, width, names = _targets(y, y2, classes)
    if transform is None and x.dtype == torch.uint8:
        transform = scaled
    return Source(
        x,
        torch.from_numpy(y),
        x2,
        torch.from_numpy(y2),
        width,
        owners,
        transform=transform,
        class_names=names,
    )


def from_dataset(
    dataset: Any, client_ids: Any = None, *, test: Any = 0.2, **options: Any
) -> Source:
    """Samples of a map-style torch Dataset of (input, target) pairs; its transforms run once.

    `test` may be another Dataset; other options as for `from_arrays`.
    """
    parts: list[Callable[[Any], Any]] = [lambda item: item[0], lambda item: item[1]]
    inputs, targets = _columns(dataset, parts)
    if not isinstance(test, int | float):
        test = _columns(test, parts)
    return from_arrays(inputs, targets, client_ids, test=test, **options)


def from_table(
    path: str | Path,
    *,
    target: str,
    client: str | None = None,
    features: Sequence[str] | None = None,
    test: float | str | Path = 0.2,
    scale: bool = True,
    seed: int = 0,
    **options: Any,
) -> Source:
    """Samples from the rows of a table: CSV with a header, gzipped or not, or Parquet.

    target    column of the targets; whole numbers are classes in their order if at most 100, and
              at most half as many as rows, differ, else values to predict; with `classes`, they
              are classes from 0
    client    column of the client ids
    features  columns of the inputs; by default all but `target` and `client`
    test      a share of the rows, or the path of another table with the same columns
    scale     standardise numbers by mean and standard deviation of all training rows

    Texts are categories, one-hot, in sorted order; true and false are 1 and 0. The source's `note`
    says what was done, its `normalisation` how. Parquet needs polars or pyarrow. Other options as
    for `from_arrays`. `Table` is the same as a data set that the command line can name.
    """
    table = read_table(Path(path), target, client, features)
    if isinstance(test, int | float):
        mask = _training(len(table.targets), table.owners, test, seed)
        train, held = table.rows(mask), table.rows(~mask)
    else:
        train, held = table, read_table(Path(test), target, features=list(table.features))
    columns = [Column.fit(name, cells, scale) for name, cells in train.features.items()]
    x, x2 = (encode(columns, part.features) for part in (train, held))
    y, y2, names = train.targets, held.targets, None
    if "classes" not in options and _kind(y) == _kind(y2) == "i":
        both, names = whole_classes(np.concatenate([y, y2]))
        y, y2 = both[: len(y)], both[len(y) :]
    source = from_arrays(x, y, train.owners, test=(x2, y2), **options)
    classes = None if source.targets.is_floating_point() else source.classes
    note = (
        f"{Path(path).name}: {describe(columns, train, held, scale)}; "
        f"{describe_targets(target, classes, client, train)}"
    )
    return replace(
        source,
        class_names=names or source.class_names,
        normalisation=tuple(columns),
        note=note,
    )


def from_huggingface(
    dataset: Any,
    *,
    inputs: str | Sequence[str],
    target: str,
    client: str | None = None,
    test: Any = 0.2,
    **options: Any,
) -> Source:
    """Samples of a Hugging Face Dataset, or of the splits train and test of a DatasetDict.

    inputs  a column of images or of lists of equal length, or several numeric columns
    target  column of the targets
    client  column of the client ids

    `test` may be another Dataset. Tokenise texts first, with `dataset.map` and a tokenizer that
    pads. Other options as for `from_arrays`.
    """
    if isinstance(dataset, Mapping):
        if "train" not in dataset:
            raise UndriftError(f"dataset: no split is called train; there are {sorted(dataset)}")
        dataset, test = dataset["train"], dataset.get("test", test)
    wanted = [inputs] if isinstance(inputs, str) else list(inputs)
    known = list(dataset.column_names)
    for name in (*wanted, target, *([client] if client else [])):
        if name not in known:
            raise UndriftError(f"dataset: no column is called {name!r}; there are {known}")

    def sample(row: Any) -> Any:
        return row[inputs] if isinstance(inputs, str) else [row[name] for name in wanted]

    parts: list[Callable[[Any], Any]] = [sample, lambda row: row[target]]
    if not isinstance(test, int | float):
        test = _columns(test, parts)
    columns = _columns(dataset, [*parts, lambda row: row[client]] if client else parts)
    kinds = getattr(dataset, "features", None) or {}
    options.setdefault("classes", getattr(kinds.get(target), "num_classes", None))
    return from_arrays(*columns, test=test, **options)


def scaled(batch: Tensor, rng: np.random.Generator | None = None) -> Tensor:
    """Bytes to floats in [0, 1]."""
    return batch.to(torch.float32) / 255


def _bare(array: Any) -> Any:
    """A tensor as a NumPy array; anything else unchanged."""
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else array


def _column(array: Any) -> np.ndarray:
    """Targets or client ids: objects as strings if all are, shape (n, 1) as (n,)."""
    values: np.ndarray = np.asarray(_bare(array))
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.flat):
        values = values.astype(str)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _kind(column: np.ndarray) -> str:
    """NumPy's letter for the kind of values; the same for all kinds of integers."""
    return {"b": "i", "u": "i"}.get(column.dtype.kind, column.dtype.kind)


def _inputs(array: Any) -> Tensor:
    """Inputs as a tensor: uint8, int64 or float32."""
    try:
        values = np.asarray(_bare(array))
    except ValueError:
        values = np.empty(0, dtype=object)
    if values.dtype.kind not in "biuf" or not values.ndim:
        raise UndriftError(
            "inputs: expected numbers in an array with one row per sample, all of the same shape, "
            f"found {values.dtype if values.size else 'rows of several shapes'}"
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise UndriftError(f"inputs: sample {row} has a value that is missing or infinite")
    if values.dtype != np.uint8:
        values = values.astype(np.int64 if values.dtype.kind in "iu" else np.float32, copy=False)
    return torch.from_numpy(np.ascontiguousarray(values))


def _targets(
    y: np.ndarray, y2: np.ndarray, classes: int | None
) -> tuple[np.ndarray, np.ndarray, int, tuple[str, ...] | None]:
    """Training and test targets as numbers, the number of classes or of values per sample, names.

    Only classes that were texts have names.
    """
    both, names = np.concatenate([y, y2]), None
    if both.dtype.kind == "U":
        texts, both = np.unique(both, return_inverse=True)
        classes = classes or len(texts)
        names = tuple(texts.tolist()) if classes == len(texts) else None
    if both.dtype.kind == "f":
        if not np.isfinite(both).all():
            raise UndriftError("targets: a value is missing or infinite")
        both, width = both.astype(np.float32), both.shape[1] if both.ndim > 1 else 1
    elif both.dtype.kind in "biu":
        both = both.astype(np.int64)
        width = int(both.max()) + 1 if classes is None else classes
        if both.ndim == 1 and not 0 <= both.min() <= both.max() < width:
            raise UndriftError(
                f"targets: classes go from {both.min()} to {both.max()}, expected 0 to {width - 1}"
            )
        if both.ndim == 1 and classes is None and both.min() > 0:
            raise UndriftError(
                f"targets: classes go from {both.min()} to {both.max()}; number them from 0 on, or "
                f"give classes={width} if some have no samples"
            )
    else:
        raise UndriftError(f"targets: expected numbers or strings, found {both.dtype}")
    return both[: len(y)], both[len(y) :], width, names


def _training(n: int, owners: np.ndarray | None, test: Any, seed: int) -> np.ndarray:
    """True for training samples."""
    if not isinstance(test, int | float) or not 0 <= test < 1:
        raise UndriftError(f"test={test!r}: must be a share >= 0 and < 1, or test data")
    if not test:
        return np.ones(n, dtype=bool)
    return training_mask(np.zeros(n) if owners is None else owners, 1 - test, seed)


def _columns(rows: Any, parts: Iterable[Callable[[Any], Any]]) -> tuple[np.ndarray, ...]:
    """One array per function in `parts`, which is applied to every row."""
    if not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__")):
        raise UndriftError(
            f"{type(rows).__name__}: expected a map-style data set, with __len__ and __getitem__"
        )
    parts, n = tuple(parts), len(rows)
    columns: list[np.ndarray] = []
    for i in range(n):
        row = rows[i]
        try:
            values = [np.asarray(_bare(part(row))) for part in parts]
        except (TypeError, LookupError, ValueError):
            raise UndriftError(
                f"sample {i}, {type(row).__name__}: expected a pair of numbers or arrays"
            ) from None
        if not columns:
            kinds = ["O" if value.dtype.kind == "U" else value.dtype for value in values]
            columns = [np.empty((n, *v.shape), k) for v, k in zip(values, kinds, strict=True)]
        for column, value in zip(columns, values, strict=True):
            if value.shape != column.shape[1:]:
                raise UndriftError(
                    f"sample {i} has the shape {value.shape}, the first one {column.shape[1:]}; "
                    "pad or crop them"
                )
            column[i] = value
    if not columns:
        raise UndriftError("the data set is empty")
    return tuple(c.astype(str) if c.dtype.kind == "O" else c for c in columns)
