"""Your own data: arrays, a torch Dataset, a table, or a Hugging Face dataset.

Each function makes a `Source`, which may stand wherever a data set is named:
`federate(from_arrays(x, y, client_ids=users), Natural(), seed=0)`.

inputs      numbers become float32; bytes stay bytes until a batch is made of them, and are then
            scaled to [0, 1], unless there is a `transform`; other whole numbers, such as those of
            words, become int64
targets     whole numbers from 0 on are classes, `classes` of them if given, else up to the
            largest; text is numbered in alphabetical order; other numbers are values to predict,
            float32
client_ids  the owner of each sample, numbers or text, for `Natural`
test        the part to test on, drawn at random with `seed`: of each client's samples if there are
            clients, but of a single one none; 0 holds nothing back; or test data of the same kind
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.config import UndriftError
from undrift.data.federated import Transform
from undrift.data.files.tables import read_table
from undrift.data.partition.split import training_mask
from undrift.data.source import Source


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
            raise UndriftError(f"{name}: {found} for {len(x)} inputs; there must be one for each")
    if owners is not None and (owners.ndim != 1 or owners.dtype.kind not in "biuUS"):
        raise UndriftError(
            f"client_ids: expected a number or a text for each sample, found {owners.dtype} of "
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
                f"targets; those to train on are {x.dtype} of shape {tuple(x.shape[1:])}"
            )
        if y2.shape[1:] != y.shape[1:] or _kind(y2) != _kind(y):
            raise UndriftError(
                f"test: targets are {y2.dtype} of shape {y2.shape[1:]}, those to train on "
                f"{y.dtype} of shape {y.shape[1:]}"
            )
    else:
        train = _held_back(len(x), owners, test, seed)
        x, y, x2, y2 = x[train], y[train], x[~train], y[~train]
        owners = None if owners is None else owners[train]
    y, y2, count = _targets(y, y2, classes)
    if transform is None and x.dtype == torch.uint8:
        transform = scaled
    return Source(
        x, torch.from_numpy(y), x2, torch.from_numpy(y2), count, owners, transform=transform
    )


def from_dataset(
    dataset: Any, client_ids: Any = None, *, test: Any = 0.2, **options: Any
) -> Source:
    """Samples of a map-style torch Dataset of (input, target) pairs, its transforms included.

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
    **options: Any,
) -> Source:
    """Samples in the rows of a table: CSV with a header, gzipped or not, or Parquet.

    target    column of the targets
    client    column that says whose a row is
    features  columns of the inputs, all numbers; by default all but `target` and `client`
    test      a part of the rows, or the path of another table with the same columns

    Parquet needs polars or pyarrow. Other options as for `from_arrays`.
    """
    inputs, targets, owners = read_table(Path(path), target, client, features)
    held: Any = test
    if not isinstance(test, int | float):
        held = read_table(Path(test), target, client, features)[:2]
    return from_arrays(inputs, targets, owners, test=held, **options)


def from_huggingface(
    dataset: Any,
    *,
    inputs: str | Sequence[str],
    target: str,
    client: str | None = None,
    test: Any = 0.2,
    **options: Any,
) -> Source:
    """Samples of a Hugging Face Dataset, or of the parts train and test of a DatasetDict.

    inputs  a column of images or equally long lists, or several columns of numbers
    target  column of the targets
    client  column that says whose a sample is

    `test` may be another Dataset. Texts have to be made numbers of first, with `dataset.map` and a
    tokenizer that pads. Other options as for `from_arrays`.
    """
    if isinstance(dataset, Mapping):
        if "train" not in dataset:
            raise UndriftError(f"dataset: no part is called train; there are {sorted(dataset)}")
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
    """Bytes as numbers between 0 and 1."""
    return batch.to(torch.float32) / 255


def _bare(array: Any) -> Any:
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else array


def _column(array: Any) -> np.ndarray:
    """Targets or client ids: text as text, and columns of one value as rows."""
    values: np.ndarray = np.asarray(_bare(array))
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.flat):
        values = values.astype(str)
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _kind(column: np.ndarray) -> str:
    """One letter for whole numbers, other numbers or text."""
    return {"b": "i", "u": "i"}.get(column.dtype.kind, column.dtype.kind)


def _inputs(array: Any) -> Tensor:
    """Inputs as they are stored."""
    try:
        values = np.asarray(_bare(array))
    except ValueError:
        values = np.empty(0, dtype=object)
    if values.dtype.kind not in "biuf" or not values.ndim:
        raise UndriftError(
            "inputs: expected numbers, in an array with one row a sample and rows of one shape, "
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
) -> tuple[np.ndarray, np.ndarray, int]:
    """Targets to train and test on as numbers, and how many classes or values there are."""
    both = np.concatenate([y, y2])
    if both.dtype.kind == "U":
        names, both = np.unique(both, return_inverse=True)
        classes = classes or len(names)
    if both.dtype.kind == "f":
        if not np.isfinite(both).all():
            raise UndriftError("targets: a value is missing or infinite")
        both, count = both.astype(np.float32), both.shape[1] if both.ndim > 1 else 1
    elif both.dtype.kind in "biu":
        both = both.astype(np.int64)
        count = int(both.max()) + 1 if classes is None else classes
        if both.ndim == 1 and not 0 <= both.min() <= both.max() < count:
            raise UndriftError(
                f"targets: classes go from {both.min()} to {both.max()}, expected 0 to {count - 1}"
            )
        if both.ndim == 1 and classes is None and both.min() > 0:
            raise UndriftError(
                f"targets: classes go from {both.min()} to {both.max()}; number them from 0 on, or "
                f"say classes={count} if some have no samples"
            )
    else:
        raise UndriftError(f"targets: expected numbers or text, found {both.dtype}")
    return both[: len(y)], both[len(y) :], count


def _held_back(n: int, owners: np.ndarray | None, test: Any, seed: int) -> np.ndarray:
    """Which samples are to train on."""
    if not isinstance(test, int | float) or not 0 <= test < 1:
        raise UndriftError(f"test={test!r}: must be a part between 0 and 1, or test data")
    if not test:
        return np.ones(n, dtype=bool)
    return training_mask(np.zeros(n) if owners is None else owners, 1 - test, seed)


def _columns(rows: Any, parts: Iterable[Callable[[Any], Any]]) -> tuple[np.ndarray, ...]:
    """One array for each part of the rows; rows are taken one by one."""
    if not (hasattr(rows, "__len__") and hasattr(rows, "__getitem__")):
        raise UndriftError(
            f"{type(rows).__name__}: expected a data set with a length and numbered samples"
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
