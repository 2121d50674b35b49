"""Users' own tables as data sets: columns, targets, clients, and what is said of them."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from undrift.config import UndriftError
from undrift.data.encoding import Column
from undrift.data.own import from_table
from undrift.data.source import Source
from undrift.data.sources import Table, dataset

RNG = np.random.default_rng(0)
ROWS = 60


def write(path: Path, columns: dict[str, list[object]]) -> Path:
    rows = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    text = "\n".join(rows) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def patients(**changes: list[object]) -> dict[str, list[object]]:
    """60 rows of 5 hospitals: two numbers, a constant, a flag, a text."""
    columns: dict[str, list[object]] = {
        "age": RNG.integers(20, 90, ROWS).tolist(),
        "weight": RNG.normal(70, 10, ROWS).round(2).tolist(),
        "country": ["NL"] * ROWS,
        "floor": [3] * ROWS,
        "smokes": [("true", "False")[i % 2] for i in range(ROWS)],
        "sex": [("m", "f")[i % 3 > 0] for i in range(ROWS)],
        "cost": RNG.normal(1000, 300, ROWS).round(2).tolist(),
        "hospital": [f"H{i % 5:02}" for i in range(ROWS)],
    }
    return columns | changes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "patients.csv", patients())


def same(one: Source, two: Source) -> bool:
    fields = ("inputs", "targets", "test_inputs", "test_targets")
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in fields)


def test_a_table_says_what_became_of_it(file: Path) -> None:
    source = Table(str(file), "cost", client="hospital").load(0)
    assert source.note == (
        "patients.csv: 6 columns, 2 of them text (one-hot, 3 categories), 1 true or false "
        "(1 or 0), 3 standardised, 1 the same in all training rows (0); "
        "target cost is a number, not scaled, clients by hospital (5)"
    )
    assert source.inputs.shape == (45, 7)
    assert source.targets.dtype == torch.float32
    assert source.targets.max() > 500  # not scaled
    assert source.normalisation is not None
    assert [column.name for column in source.normalisation] == list(patients())[:6]
    assert source.normalisation[5].categories == ("f", "m")


def test_training_rows_alone_decide_the_scale(file: Path) -> None:
    source = Table(str(file), "cost").load(0)
    train, held = source.inputs[:, :2].double(), source.test_inputs[:, :2].double()
    assert torch.allclose(train.mean(0), torch.zeros(2, dtype=torch.double), atol=1e-6)
    assert torch.allclose(train.std(0, correction=0), torch.ones(2, dtype=torch.double))
    raw = Table(str(file), "cost", scale=False).load(0)
    assert source.normalisation is not None
    for k, column in enumerate(source.normalisation[:2]):
        assert column.mean == pytest.approx(raw.inputs[:, k].double().mean())
        assert torch.allclose(held[:, k] * column.sd + column.mean, raw.test_inputs[:, k].double())
    assert (source.inputs[:, 3] == 0).all()
    assert (raw.inputs[:, 3] == 3).all()
    assert set(source.inputs[:, 4].tolist()) == {0, 1}
    assert raw.note is not None
    assert "3 numbers unscaled" in raw.note


numbers = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)
texts = st.lists(st.sampled_from(["a", "b", "ä", "10", "9"]), min_size=1, max_size=30)


@given(numbers)
def test_standardised_columns_have_mean_0_and_deviation_1(cells: list[float]) -> None:
    column = Column.fit("x", np.array(cells))
    made = column.inputs(np.array(cells)).astype(np.float64)
    assert made.shape == (len(cells), 1)
    assert np.isfinite(made).all()
    if max(cells) - min(cells) > 1e-3:
        assert abs(made.mean()) < 1e-3
        assert made.std() == pytest.approx(1, abs=1e-3)
    elif max(cells) == min(cells):
        assert (made == 0).all()
        assert (column.inputs(np.array([1.0, 2.0])) == 0).all()


@given(texts, texts)
def test_one_hot(cells: list[str], others: list[str]) -> None:
    column = Column.fit("x", np.array(cells, dtype=object))
    assert column.categories == tuple(sorted(set(cells)))
    made = column.inputs(np.array(cells, dtype=object))
    assert (made.sum(1) == 1).all()
    assert [column.categories[i] for i in made.argmax(1)] == cells
    held = column.inputs(np.array(others, dtype=object))
    assert held.sum(1).tolist() == [float(one in cells) for one in others]


def test_categories_of_test_rows_only(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", {"x": ["a", "b", "b"], "y": [1.5, 2.5, 3.5]})
    test = write(tmp_path / "test.csv", {"y": [1.5, 2.5], "x": ["c", "a"]})
    source = dataset(f"Table({str(train)!r}, target='y', test={str(test)!r})").load(0)
    assert source.test_inputs.tolist() == [[0, 0], [1, 0]]
    assert source.note is not None
    assert "1 category only in test rows (all zeros)" in source.note
    write(test, {"x": [1, 2], "y": [1.5, 2.5]})
    with pytest.raises(UndriftError, match="column x: its cells are numbers in one table and"):
        Table(str(train), "y", test=str(test)).load(0)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_tables_agree_with_from_table(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"p.{ending}", patients())
    table = Table(str(path), "cost", client="hospital", features=["sex", "age"], test=0.3)
    source = table.load(5)
    own = from_table(path, target="cost", client="hospital", features=["sex", "age"], test=0.3)
    assert same(source, own)
    assert (source.note, source.normalisation) == (own.note, own.normalisation)
    assert dataset(repr(table)) == table
    assert repr(Table("a.csv", "y")) == "Table(path='a.csv', target='y')"


def test_classes(tmp_path: Path) -> None:
    whole = [(3, 7, -1)[i % 3] for i in range(ROWS)]
    named = [("low", "high")[i % 2] for i in range(ROWS)]
    for target, names in ((whole, ("-1", "3", "7")), (named, ("high", "low"))):
        source = Table(str(write(tmp_path / "c.csv", patients(cost=list(target)))), "cost").load(0)
        assert (source.class_names, source.classes) == (names, len(names))
        assert set(source.targets.tolist()) == set(range(len(names)))
        assert source.note is not None
        assert f"target cost is one of {len(names)} classes" in source.note
    few = write(tmp_path / "f.csv", {"x": list(range(20)), "y": [i % 11 for i in range(20)]})
    assert Table(str(few), "y").load(0).targets.dtype == torch.float32
    many = write(tmp_path / "m.csv", {"x": list(range(101)), "y": list(range(5, 106))})
    assert Table(str(many), "y").load(0).targets.dtype == torch.float32
    assert from_table(many, target="y", classes=106).classes == 106


def test_a_changed_file_is_read_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    table = Table("patients.csv", "cost")
    before = table.load(0)
    assert table.load(1) is before
    write(file, patients(cost=[1.5] * ROWS))
    os.utime(file, (1, 1))
    assert (table.load(0).targets == 1.5).all()
    with pytest.raises(UndriftError, match=r"gone.csv: No such file .* in .*; paths of tables are"):
        Table("gone.csv", "cost").load(0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sex": [f"patient {i}" for i in range(300)]}, "column sex: 240 different texts in 240"),
        ({"age": ["", *range(299)]}, "row 2, column age: it is empty; fill it in"),
        ({"sex": ["", "", *"m" * 298]}, r"row 2, column sex: it is empty \(2 of 300 rows\)"),
        ({"age": [*range(298), "NA", "NA"]}, "row 300, column age: 'NA' is not a number, but"),
    ],
)
def test_what_columns_are_refused(
    tmp_path: Path, changes: dict[str, list[object]], said: str
) -> None:
    columns = {name: cells * 5 for name, cells in patients().items()} | changes
    path = write(tmp_path / "p.csv", columns)
    with pytest.raises(UndriftError, match=said) as error:
        Table(str(path), "cost").load(0)
    assert "features=[...]" in str(error.value)


def test_columns_longer_than_a_block(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(str(file), "cost", client="hospital")
    whole = table.load(0)
    monkeypatch.setattr("undrift.data.files.tables.BLOCK", 7)
    assert same(from_table(file, target="cost", client="hospital"), whole)
    write(file, patients(age=[*range(40), *["old"] * 20]))
    with pytest.raises(UndriftError, match="row 42, column age: 'old' is not a number"):
        table.load(0)


def test_paths_in_place_of_names(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert dataset("./patients.csv", "cost", "hospital") == Table(
        "./patients.csv", "cost", client="hospital"
    )
    assert dataset(" My (1).PARQUET", "y") == Table("My (1).PARQUET", "y")
    for text, columns, said in (
        ("patients.csv", {}, r"--target-column NAME, .* there are age, weight, country, floor"),
        ("patients.csv", {"client": "hospital"}, "--target-column NAME"),
        ("gone.csv", {}, "gone.csv: No such file"),
        ("digits", {"target": "cost"}, "--target-column cost: .* 'digits' is none"),
        ("Table('a.csv', target='y')", {"client": "c"}, "--client-column c: .* is none"),
        ("./mine.npz", {}, "is a file; .* a table that ends in .csv, .csv.gz, .parquet"),
        ("Table('a.csv')", {}, "target must be given"),
        ("Table('a.csv', 'y', features='x')", {}, "features must be a list of columns"),
        ("Table('a.csv', 'y', test=1)", {}, "test must be a share >= 0 and < 1"),
    ):
        with pytest.raises(UndriftError, match=said):
            dataset(text, **columns)


def test_notebooks_show_a_source(tmp_path: Path) -> None:
    page = Table(str(write(tmp_path / "a<b.csv", patients())), "cost").load(0)._repr_html_()
    assert '<td style="text-align:left">48</td>' in page
    assert "a&lt;b.csv: 7 columns" in page


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "it is empty"), ("a;b\n1;2\n", "separated by ';'; use commas"), ("a\tb\n", "use commas")],
)
def test_files_without_columns_are_told(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content, encoding="utf-8")
    for target in ("b", None):
        with pytest.raises(UndriftError, match=message):
            dataset(str(path), target).load(0)
