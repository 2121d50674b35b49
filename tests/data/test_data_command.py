"""`undrift data`."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.data.server import serving
from tests.data.test_formats import idx_bytes
from undrift.commands.data import data_app
from undrift.config import UndriftError
from undrift.data import fetch
from undrift.data.fetch import File
from undrift.data.sources import MNIST, SOURCES, file_set


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("UNDRIFT_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("undrift.data.download.WAIT", 0)
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


def test_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data("where")
    assert capsys.readouterr().out == f"{tmp_path}\n"
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    data("where", "cifar10")
    data("where", "emnist-letters")
    there, missing = capsys.readouterr().out.splitlines()
    assert there == str(tmp_path / "cifar-10-python.tar.gz")
    assert missing == f"{tmp_path / 'emnist' / 'gzip.zip'}  (not there)"


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
    assert facts["samples_by_class"][:4] == [[4, 2], [4, 2], [4, 2], [0, 0]]
    data("show", "mnist")
    assert "██████" in capsys.readouterr().out


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
