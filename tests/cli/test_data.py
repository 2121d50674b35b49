"""`undrift data`."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.server import serving
from tests.data.test_formats import idx_bytes
from undrift.cli.data import data_app
from undrift.cli.listing import list_
from undrift.config import UndriftError
from undrift.data.files import fetch
from undrift.data.files.fetch import File
from undrift.data.sources import MNIST, SOURCES, file_set


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("UNDRIFT_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("undrift.data.files.download.WAIT", 0)
    file_set._read.cache_clear()
    yield
    fetch.use_data_dir(None)
    fetch.use_mirror(None)
    file_set._read.cache_clear()


def data(*arguments: str) -> None:
    data_app(arguments, exit_on_error=False, print_error=False, result_action="return_none")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    data("list", "--json")
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(SOURCES)
    assert all(row["about"] for row in rows)
    states = {row["name"]: row["state"] for row in rows}
    assert (states["digits"], states["mnist"]) == ("-", "no, 12 MB")
    data("list")
    assert "fashion-mnist" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["data", "models", "partitions"])
def test_no_option_is_cut(kind: Any, capsys: pytest.CaptureFixture[str]) -> None:
    list_(kind)
    assert "…" not in capsys.readouterr().out


def test_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data("where")
    assert capsys.readouterr().out == f"{tmp_path}\n"
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    data("where", "cifar10")
    data("where", "emnist-letters")
    there, missing = capsys.readouterr().out.splitlines()
    assert there == str(tmp_path / "cifar-10-python.tar.gz")
    assert missing == f"{tmp_path / 'emnist' / 'gzip.zip'}  (not there)"


def test_what_stands_in_for_the_published_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = [f"emnist-digits-{part}-idx1-ubyte" for part in ("train-labels", "test-labels")]
    splits += [f"emnist-digits-{part}-idx3-ubyte" for part in ("train-images", "test-images")]
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)]
    for name in (
        *("shakespeare/100.txt", "20news/20news-bydate.tar.xz", "ag_news/train.csv.gz"),
        *(f"emnist/gzip/{name}" for name in splits),
        *(f"cifar10/cifar-10-batches-bin/{name}" for name in (*batches, "test_batch.bin")),
        *(f"mnist/{file.name.removesuffix('.gz')}" for file in MNIST.files),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    data("list", "--json")
    states = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    there = {name for name, state in states.items() if state == "yes"}
    assert there == {"shakespeare", "newsgroups20", "emnist-digits", "cifar10", "mnist"}
    data("fetch", "shakespeare")
    assert capsys.readouterr().out == f"shakespeare: {tmp_path / 'shakespeare' / '100.txt'}\n"
    data("where", "agnews")
    first, second = capsys.readouterr().out.splitlines()
    assert first == str(tmp_path / "ag_news" / "train.csv.gz")
    assert second == f"{tmp_path / 'ag_news' / 'test.csv'}  (not there)"


def test_data_that_are_made_or_brought(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data("list", "--json")
    states = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert (states["synthetic"], states["femnist"]) == ("-", "by hand")
    data("where", "digits")
    data("where", "femnist")
    said = f"digits needs no files\n{tmp_path / 'femnist'}  (not there)\n"
    assert capsys.readouterr().out == said
    with pytest.raises(UndriftError, match="femnist: cannot be downloaded; `undrift data show"):
        data("fetch", "femnist")


def test_a_failed_download_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "deep"
    with pytest.raises(UndriftError, match="cannot be downloaded"):
        data("fetch", "mnist", "--data-dir", str(folder), "--mirror", "http://127.0.0.1:9")
    assert not folder.parent.exists()


def test_many_classes_are_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("undrift.cli.data.ROWS", 3)
    data("show", "digits")
    assert "and 7 classes more" in capsys.readouterr().out


def test_fetch_and_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = [
        np.zeros((12, 28, 28), np.uint8) + 7,
        np.arange(12, dtype=np.uint8) % 3,
        np.zeros((6, 28, 28), np.uint8),
        np.arange(6, dtype=np.uint8) % 3,
    ]
    content = {
        file.name: gzip.compress(idx_bytes(array))
        for file, array in zip(MNIST.files, arrays, strict=True)
    }
    published = tuple(
        File(name, "http://127.0.0.1:9/", md5=hashlib.md5(made).hexdigest(), size=len(made))
        for name, made in content.items()
    )
    monkeypatch.setattr(MNIST, "files", published)
    with serving({f"/mirror/mnist/{name}": made for name, made in content.items()}) as server:
        data("fetch", "mnist", "digits", "--mirror", f"{server.url}/mirror")
        assert len(server.asked) == 4
    shown = capsys.readouterr().out
    assert f"mnist: {tmp_path / 'mnist' / 'train-images-idx3-ubyte.gz'}" in shown
    assert "digits: needs no download" in shown
    data("show", "mnist", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert (facts["training_samples"], facts["test_samples"]) == (12, 6)
    assert facts["sample"] == "(1, 28, 28) uint8"
    assert facts["model_input"] == "(1, 28, 28) float32"
    assert facts["samples_by_class"][:4] == [[4, 2], [4, 2], [4, 2], [0, 0]]
    data("show", "mnist")
    assert "██████" in capsys.readouterr().out


def test_an_own_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{'ab'[i % 2]},{i / 4},{i % 3}" for i in range(40)]
    Path("t.csv").write_text("\n".join(["x,kind,cost,who", *rows]), encoding="utf-8")
    data("show", "t.csv", "--target-column", "kind", "--client-column", "who", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["note"].endswith("target kind is one of 2 classes, clients by who (3)")
    assert [sum(row) for row in facts["samples_by_class"]] == [20, 20]
    data("show", "t.csv", "--target-column", "kind")
    assert " a     " in capsys.readouterr().out
    data("show", "t.csv", "--target-column", "cost")
    shown = capsys.readouterr().out
    assert "numbers from 0 to 9.75" in shown
    assert "class" not in shown


def test_nothing_is_downloaded_to_show_a_folder(tmp_path: Path) -> None:
    with pytest.raises(
        UndriftError, match=r"it has no gzip.zip of emnist, nor has its folder emnist; it has"
    ):
        data("show", "emnist-letters", "--data-dir", str(tmp_path))


def test_mistakes() -> None:
    for arguments, says in (
        (["fetch"], "name at least one data set"),
        (["fetch", "mnits"], "did you mean 'mnist'"),
        (["fetch", "mnist", "--mirror", "here"], "http://"),
        (["fetch", "mnist", "--mirror", "http://127.0.0.1:9"], "cannot be downloaded"),
        (["show", "mnits"], "did you mean 'mnist'"),
    ):
        with pytest.raises(UndriftError, match=says):
            data(*arguments)
