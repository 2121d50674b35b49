"""A user's own data: arrays, Datasets, tables and Hugging Face datasets."""

import gzip
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from undrift.config import UndriftError
from undrift.data.own import from_arrays, from_dataset, from_huggingface, from_table
from undrift.data.partition.partitions import Natural, federate

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 3)), RNG.integers(4, size=50)
Y[:4] = range(4)
USERS = np.array(["ann", "bob", "cat", "dan", "eve"]).repeat(10)


def same(one, two):
    fields = ("inputs", "targets", "test_inputs", "test_targets")
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in fields)


def test_arrays():
    source = from_arrays(X, Y)
    assert (source.inputs.dtype, source.targets.dtype) == (torch.float32, torch.int64)
    assert (len(source.inputs), len(source.test_inputs), source.classes) == (40, 10, 4)
    everything = torch.cat([source.inputs, source.test_inputs])
    assert torch.equal(
        everything.sort(0).values, torch.tensor(X, dtype=torch.float32).sort(0).values
    )
    row = int(np.argmin(np.abs(X[:, 0] - float(source.inputs[7, 0]))))
    assert int(source.targets[7]) == Y[row]
    assert same(source, from_arrays(torch.tensor(X), torch.tensor(Y)))
    assert same(source, from_arrays(X.tolist(), Y.tolist()))
    assert not same(source, from_arrays(X, Y, seed=1))
    assert source.load(3) is source


def test_arrays_with_clients():
    source = from_arrays(X, Y, USERS, test=0.3)
    owners, counts = np.unique(source.client_ids, return_counts=True)
    assert owners.tolist() == ["ann", "bob", "cat", "dan", "eve"]
    assert counts.tolist() == [7] * 5
    assert federate(source, Natural(), 0).sizes.tolist() == [7] * 5
    alone = from_arrays(X[:3], Y[:3], [1, 1, 2])
    assert sorted(alone.client_ids.tolist()) == [1, 2]


def test_arrays_with_test_data():
    source = from_arrays(X[:40], Y[:40], USERS[:40], test=(X[40:], Y[40:]))
    assert torch.equal(source.test_targets, torch.tensor(Y[40:]))
    assert len(source.targets) == len(source.client_ids) == 40
    assert len(from_arrays(X, Y, test=0).test_targets) == 0


def test_kinds_of_inputs():
    pixels = RNG.integers(256, size=(10, 1, 4, 4)).astype(np.uint8)
    source = from_arrays(pixels, Y[:10])
    assert source.inputs.dtype == torch.uint8
    batch = source.transform(source.inputs, None)
    assert torch.equal(batch, source.inputs.float() / 255)
    assert from_arrays(pixels, Y[:10], transform=lambda x, rng: x.float()).transform is not None
    assert from_arrays(pixels.astype(np.int16), Y[:10]).inputs.dtype == torch.int64
    assert from_arrays(X > 0, Y).inputs.dtype == torch.float32


def test_kinds_of_targets():
    source = from_arrays(X, X[:, 0])
    assert (source.targets.dtype, source.classes) == (torch.float32, 1)
    assert from_arrays(X, X).classes == 3
    named = from_arrays(X, np.array(["b", "a", "c"])[Y % 3], test=0)
    assert named.targets.tolist() == [[1, 0, 2][y % 3] for y in Y]
    assert named.classes == 3
    assert from_arrays(X, Y, classes=9).classes == 9
    objects = np.array([f"c{y}" for y in Y], dtype=object)  # as data frames have text
    assert same(from_arrays(X, objects, objects), from_arrays(X, Y, Y))
    assert same(from_arrays(X, Y[:, None]), from_arrays(X, Y))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((X, Y[:9]), "targets: 9 for 50 inputs"),
        ((X, Y, USERS[:9]), "client_ids: 9 for 50 inputs"),
        ((X, Y, X), "client_ids: expected one integer or string"),
        ((X, 3), "targets: one for 50 inputs"),
        ((X[:0], Y[:0]), "there are no samples"),
        (([[1.0], [1.0, 2.0]], [0, 1]), "rows of several shapes"),
        ((["a text", "more"], [0, 1]), "inputs: expected numbers"),
        ((np.where(X > 2, np.nan, X), Y), r"sample \d+ has a value that is missing"),
        ((X, Y - 1), "classes go from -1 to 2, expected 0 to 2"),
        ((X, np.full(50, np.nan)), "targets: a value is missing"),
        ((X, np.full(50, None)), "targets: expected numbers or strings, found object"),
    ],
)
def test_what_arrays_are_refused(arguments, said):
    with pytest.raises(UndriftError, match=said):
        from_arrays(*arguments)


def test_classes_that_do_not_start_from_0():
    said = "classes go from 1 to 4; number them from 0 on, or give classes=5"
    with pytest.raises(UndriftError, match=said):
        from_arrays(X, Y + 1)
    assert from_arrays(X, Y + 1, classes=5).classes == 5
    assert from_arrays(X, (Y + 1).astype(str)).classes == 4
    rows = [[1, 2], [2, 3]] * 25
    assert from_arrays(X, rows).classes == 4  # rows of tokens


def test_what_test_data_are_refused():
    for test in (1, -0.1, "a"):
        with pytest.raises(UndriftError, match="must be a share >= 0 and < 1"):
            from_arrays(X, Y, test=test)
    with pytest.raises(UndriftError, match=r"test: 5 inputs torch.float32 of shape \(2,\)"):
        from_arrays(X, Y, test=(X[:5, :2], Y[:5]))
    with pytest.raises(UndriftError, match="classes go from 0 to 3, expected 0 to 1"):
        from_arrays(X, Y, classes=2)
    with pytest.raises(UndriftError, match=r"expected a pair \(inputs, targets\), found 1 parts"):
        from_arrays(X, Y, test=(X,))
    for targets in (X[:, 0], X[:, :2], USERS):
        with pytest.raises(UndriftError, match=r"training targets int64 of shape \(\)"):
            from_arrays(X, Y, test=[X, targets])


@dataclass
class Squares(Dataset):
    """Images of growing brightness, as torchvision gives them: a tensor and a number."""

    size: int
    uneven: bool = False

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        side = 3 if self.uneven and i == 2 else 2
        return torch.full((1, side, side), i / 10), i % 3


def test_datasets():
    source = from_dataset(Squares(30), np.arange(30) // 10)
    assert source.inputs.shape == (24, 1, 2, 2)
    assert np.bincount(source.client_ids).tolist() == [8, 8, 8]
    assert ((source.inputs[:, 0, 0, 0] * 10).round().long() % 3 == source.targets).all()
    pairs = TensorDataset(torch.tensor(X), torch.tensor(Y))
    assert same(from_dataset(pairs), from_arrays(X, Y))
    given = from_dataset(Subset(pairs, range(40)), test=Subset(pairs, range(40, 50)))
    assert same(given, from_arrays(X[:40], Y[:40], test=(X[40:], Y[40:])))
    with pytest.raises(UndriftError, match=r"sample 2 has the shape \(1, 3, 3\), the first"):
        from_dataset(Squares(5, uneven=True))
    with pytest.raises(UndriftError, match="the data set is empty"):
        from_dataset(Squares(0))


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (iter([(1, 2)]), "expected a map-style data set"),
        ([1, 2], "sample 0, int: expected a pair of numbers or arrays"),
        ([(1.0,)], "sample 0, tuple: expected a pair"),
        ([([[1], [1, 2]], 0)], "sample 0, tuple: expected a pair"),
    ],
)
def test_what_datasets_are_refused(dataset, said):
    with pytest.raises(UndriftError, match=said):
        from_dataset(dataset)


def write_table(path, rows=50):
    lines = ["user,age,label,height"]
    lines += [f"{USERS[i]},{X[i, 0]!r},c{Y[i]},{X[i, 1]!r}" for i in range(rows)]
    text = "\n".join(lines).replace("np.float64(", "").replace(")", "") + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_csv_tables(tmp_path, name):
    path = write_table(tmp_path / name)
    source = from_table(path, target="label", client="user", scale=False)
    assert same(source, from_arrays(X[:, :2].astype(np.float32), Y, USERS))
    assert (source.client_ids == from_arrays(X, Y, USERS).client_ids).all()
    one = from_table(str(path), target="label", features=["height"], test=0, scale=False)
    assert one.client_ids is None
    assert one.inputs[:, 0].tolist() == pytest.approx(X[:, 1].tolist(), rel=1e-6)
    value = from_table(path, target="age", features=["height"])
    assert (value.targets.dtype, value.classes) == (torch.float32, 1)
    apart = from_table(path, target="label", client="user", test=path)
    assert len(apart.targets) == len(apart.test_targets) == 50


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("a,b\n1,2\n", {"target": "c"}, "no column is called 'c'; known: a, b"),
        ("a,b\n1,2\n", {"target": "b", "client": "A"}, "no column is called 'A'; did you mean 'a'"),
        ("a,b\n1,2\n3\n", {"target": "b"}, "row 3: expected 2 fields, found 1"),
        (
            "a,b\n1,2\nx,3\n",
            {"target": "b"},
            "row 3, column a: 'x' is not a number, but most of the column are",
        ),
        ("a,b\n", {"target": "b"}, "the table has no rows"),
        ("b\n1\n", {"target": "b"}, "no column is left for features"),
        ("", {"target": "b"}, "it is empty"),
        (
            "a,b\n" + "nan,1\n" * 3,
            {"target": "b"},
            r"row 2, column a: the number is missing.*\(3 of 3",
        ),
        ("a,b\n1,0\n ,0\n", {"target": "b"}, "row 3, column a: it is empty; fill it in, drop"),
        ("a,b\n1,0.5\n2,nan\n", {"target": "b"}, "row 3, column b: the number is missing"),
        ("a,b\n1,0\n", {"target": "b", "features": ["b"]}, "the target b cannot be one of"),
        ("a,a,b\n1,2,0\n", {"target": "b"}, "2 columns are called 'a'"),
        ("a,b\n1,0\n2,\n", {"target": "b"}, "row 3, column b: it is empty"),
        ("a,b,c\n1,0,\n", {"target": "b", "client": "c"}, "row 2, column c: it is empty"),
    ],
)
def test_what_tables_are_refused(tmp_path, text, arguments, said):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(UndriftError, match=said):
        from_table(path, **arguments)


def write_parquet(path, **others):
    columns = {"user": USERS, "age": X[:, 0], "label": Y, "height": X[:, 1]} | others
    try:
        import polars

        polars.DataFrame(columns).write_parquet(path)
    except ImportError:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize("package", ["polars", "pyarrow.parquet"])
def test_parquet_tables(tmp_path, monkeypatch, package):
    pytest.importorskip(package)
    path = write_parquet(tmp_path / "t.parquet")
    if package != "polars":
        monkeypatch.setitem(sys.modules, "polars", None)
    source = from_table(path, target="label", client="user", scale=False)
    assert same(source, from_arrays(X[:, :2].astype(np.float32), Y, USERS))
    assert set(source.client_ids) == set(USERS)
    assert from_table(path, target="label").inputs.shape == (40, 7)  # users are categories
    dates = write_parquet(tmp_path / "dates.parquet", age=np.arange(50).astype("M8[D]"))
    with pytest.raises(UndriftError, match=r"column age: .* is neither a number nor a text"):
        from_table(dates, target="label")
    gaps = write_parquet(tmp_path / "gaps.parquet", age=[*X[:-1, 0], None])
    with pytest.raises(UndriftError, match=r"row 50, column age: the number is missing"):
        from_table(gaps, target="label")
    holes = write_parquet(tmp_path / "holes.parquet", user=[None, *USERS[1:]])
    with pytest.raises(UndriftError, match=r"row 1, column user: it is empty"):
        from_table(holes, target="label", client="user")
    path.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(UndriftError, match="not a valid Parquet file"):
        from_table(path, target="label")


def test_parquet_needs_a_package(tmp_path, monkeypatch):
    for name in ("polars", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UndriftError, match=r't.parquet needs polars, .* pip install "\.\[data\]"'):
        from_table(tmp_path / "t.parquet", target="label")


@dataclass
class Fake:
    """As much of a Hugging Face Dataset as is used."""

    columns: dict
    features: dict

    @property
    def column_names(self):
        return list(self.columns)

    def __len__(self):
        return len(self.columns["label"])

    def __getitem__(self, i):
        return {name: column[i] for name, column in self.columns.items()}


@dataclass
class ClassLabel:
    num_classes: int


def check_hugging_face(make):
    data = make({"image": X.reshape(50, 1, 3).tolist(), "label": Y.tolist(), "user": list(USERS)})
    source = from_huggingface(data, inputs="image", target="label", client="user")
    assert source.inputs.shape == (40, 1, 3)
    assert same(source, from_arrays(X.reshape(50, 1, 3), Y, USERS))
    assert source.classes == 6
    both = from_huggingface({"train": data, "test": data}, inputs="image", target="label")
    assert len(both.test_targets) == 50
    table = make({"a": X[:, 0].tolist(), "label": Y.tolist(), "b": X[:, 1].tolist()})
    numbers = from_huggingface(table, inputs=["b", "a"], target="label", test=0)
    assert torch.equal(numbers.inputs, torch.tensor(X[:, [1, 0]], dtype=torch.float32))
    with pytest.raises(UndriftError, match="no column is called 'text'; there are"):
        from_huggingface(data, inputs="text", target="label")
    with pytest.raises(UndriftError, match="inputs: expected numbers"):
        from_huggingface(data, inputs="user", target="label")
    with pytest.raises(UndriftError, match="no split is called train"):
        from_huggingface({"all": data}, inputs="image", target="label")


def test_hugging_face_datasets_by_their_looks():
    check_hugging_face(lambda columns: Fake(columns, {"label": ClassLabel(6)}))


def test_real_hugging_face_datasets():
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=list("abcdef"))
    check_hugging_face(lambda c: datasets.Dataset.from_dict(c).cast_column("label", label))
