"""Sets of images from the real files, as far as they are there: counts, labels and pixels."""

import csv
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.real import real
from tests.data.server import serving
from tests.data.test_images import (  # noqa: F401
    MNIST_NAMES,
    cifar100,
    own_folder,
    place,
    same,
    write,
)
from tests.data.test_plain_pickle import python2
from undrift.config import UndriftError
from undrift.data.files import fetch
from undrift.data.files.formats import read_idx
from undrift.data.partition.partitions import Pachinko, federate
from undrift.data.sources import CIFAR10, CIFAR100, EMNIST, MNIST, FashionMNIST


def pixels(image: torch.Tensor, row: int, columns: slice) -> list[int]:
    return image[0, row, columns].tolist()


def test_real_mnist() -> None:
    fetch.use_data_dir(real(*(f"mnist/{name}" for name in MNIST_NAMES)))
    for file in MNIST.files:
        path = fetch.data_dir() / "mnist" / file.name
        assert (fetch.digest(path), fetch.digest(path, "sha256")) == (file.md5, file.sha256)
    source = MNIST().load(0)
    assert source.inputs.shape == (60_000, 1, 28, 28)
    assert source.test_inputs.shape == (10_000, 1, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(source.targets).tolist() == counts
    assert source.targets[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert pixels(source.inputs[0], 5, slice(12, 20)) == [3, 18, 18, 18, 126, 136, 175, 26]
    assert source.transform.mean == pytest.approx((0.1307,), abs=5e-5)
    assert source.transform.std == pytest.approx((0.3081,), abs=5e-5)


def test_real_mnist_from_a_server_that_breaks_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("undrift.data.files.download.WAIT", 0)
    monkeypatch.setenv("UNDRIFT_DATA_DIR", str(tmp_path / "cache"))
    folder = real(*(f"mnist/{name}" for name in MNIST_NAMES)) / "mnist"
    fetch.use_data_dir(None)
    served = {f"/mnist/{name}": (folder / name).read_bytes() for name in MNIST_NAMES}
    with serving(served) as server:
        fetch.use_mirror(server.url)
        server.cut = [5_000_000]
        source = MNIST().load(0)
        assert [wanted for _, wanted in server.asked] == [None, "bytes=5000000-", None, None, None]
    assert (len(source.targets), len(source.test_targets)) == (60_000, 10_000)
    found = sorted(path.name for path in (tmp_path / "cache" / "mnist").iterdir())
    assert found == sorted(MNIST_NAMES)


def test_real_mnist_is_not_taken_for_fashion() -> None:
    fetch.use_data_dir(real("mnist/train-images-idx3-ubyte.gz") / "mnist")
    with pytest.raises(UndriftError, match="this is MNIST, not FashionMNIST"):
        FashionMNIST().load(0)


def test_real_emnist_letters(caplog: pytest.LogCaptureFixture) -> None:
    fetch.use_data_dir(real("emnist-letters-subset") / "emnist-letters-subset")
    source = EMNIST("letters").load(0)
    assert len(source.targets) == 74_822
    assert np.bincount(source.targets[:20_800]).tolist() == [800] * 26
    assert np.bincount(source.test_targets).tolist() == [200] * 26
    assert "results do not compare" in caplog.text
    # C is open to the right, U and V to the top.
    mean = [source.inputs[source.targets == label].float().mean(0)[0] for label in range(26)]
    middle = slice(11, 17)
    for letter, gap in (("C", "right"), ("U", "top"), ("V", "top")):
        image = mean[ord(letter) - ord("A")]
        ink = {
            "top": image[4:9, middle].mean(),
            "bottom": image[19:24, middle].mean(),
            "left": image[middle, 4:9].mean(),
            "right": image[middle, 19:24].mean(),
        }
        assert min(ink, key=lambda side: ink[side]) == gap


def test_real_emnist_byclass() -> None:
    names = [f"emnist-byclass-test-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
    folder = real(*(f"emnist/gzip/{name}" for name in names)) / "emnist" / "gzip"
    x, y = (read_idx(folder / name) for name in names)
    source_x, source_y = EMNIST("byclass")._labelled(x, y)
    assert source_x.shape == (116_323, 1, 28, 28)
    assert np.array_equal(source_x[7, 0], x[7].T)
    assert (source_y.min(), source_y.max()) == (0, 61)
    assert np.bincount(source_y)[:10].sum() == 57_918  # digits


def test_real_emnist_letters_labels() -> None:
    for part, each in (("train", 4800), ("test", 800)):
        name = f"emnist/gzip/emnist-letters-{part}-labels-idx1-ubyte.gz"
        labels = read_idx(real(name) / name)
        assert np.bincount(labels)[1:].tolist() == [each] * 26


def mosaic(path: Path) -> tuple[np.ndarray, list[dict[str, str]]]:
    """Images as rows of 3072 bytes, and the table of their labels."""
    image = pytest.importorskip("PIL.Image")
    with zipfile.ZipFile(path) as archive:
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open("index.csv"), encoding="utf-8")))
        names = sorted(name for name in archive.namelist() if name.endswith(".webp"))
        tiles = [np.asarray(image.open(archive.open(name)).convert("RGB")) for name in names]
    split = [tile.reshape(-1, 32, 50, 32, 3).transpose(0, 2, 4, 1, 3) for tile in tiles]
    return np.concatenate([tile.reshape(-1, 3072) for tile in split]), rows


def labelled100(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, rows = mosaic(path)
    fine, coarse = (np.array([int(row[f"{kind}_label"]) for row in rows]) for kind in KINDS)
    return x, fine, coarse


KINDS = ("fine", "coarse")


def test_real_cifar10(tmp_path: Path) -> None:
    folder = real("cifar10-subset") / "cifar10-subset"
    content = {}
    x, rows = mosaic(folder / "cifar10-train-subset.zip")
    y = np.array([int(row["label"]) for row in rows])
    for i, part in enumerate(np.split(np.arange(5000), 5), start=1):
        table = {b"labels": y[part].tolist(), b"data": x[part]}
        content[f"cifar-10-batches-py/data_batch_{i}"] = python2(table)
    test_x, test_rows = mosaic(folder / "cifar10-test-subset.zip")
    test_y = [int(row["label"]) for row in test_rows]
    content["cifar-10-batches-py/test_batch"] = python2({b"labels": test_y, b"data": test_x})
    write(tmp_path, content)
    source = CIFAR10().load(0)
    assert np.bincount(source.targets).tolist() == [500] * 10
    assert np.bincount(source.test_targets).tolist() == [100] * 10
    assert np.array_equal(source.inputs[4321].numpy().ravel(), x[4321])
    made = CIFAR10(augment="none").load(0).transform(source.inputs, None)
    assert made.mean((0, 2, 3)).abs().max() < 0.06
    assert (made.std((0, 2, 3)) - 1).abs().max() < 0.06


@pytest.mark.slow
def test_real_cifar100(tmp_path: Path) -> None:
    folder = real("cifar100") / "cifar100"
    halves = {name: labelled100(folder / f"cifar100-{name}.zip") for name in ("train", "test")}
    loaded = []
    for kind, archive in (("python", "cifar-100-python.tar.gz"), ("bin", "")):
        fetch.use_data_dir(tmp_path / kind)
        place(tmp_path / kind, "tar" if archive else "", cifar100(kind, halves), archive)
        loaded.append(CIFAR100().load(0))
    source = loaded[0]
    assert same(*loaded)
    assert source.inputs.shape == (50_000, 3, 32, 32)
    assert np.bincount(source.targets).tolist() == [500] * 100
    assert np.bincount(source.test_targets).tolist() == [100] * 100
    assert np.bincount(source.coarse).tolist() == [5] * 20
    assert source.coarse[[4, 30, 55, 72, 95]].tolist() == [0] * 5  # aquatic mammals
    assert source.coarse[19] == 11  # cattle: large omnivores and herbivores
    cow = first_official(folder / "cifar100-train.zip")
    assert source.targets[cow] == 19
    assert source.inputs[cow].flatten()[:3].tolist() == [255, 255, 255]
    assert source.inputs[cow].flatten()[-3:].tolist() == [10, 59, 79]
    made = CIFAR100(augment="none").load(0).transform(source.inputs[:5000], None)
    assert made.mean((0, 2, 3)).abs().max() < 0.05
    data = federate(source, Pachinko(clients=500), 0)
    assert data.sizes.tolist() == [100] * 500


def first_official(path: Path) -> int:
    """The row of the image that is the first one in the published file."""
    _, rows = mosaic(path)
    wanted = ("bos_taurus_s_000507.png", "19")
    return [(row["filename"], row["fine_label"]) for row in rows].index(wanted)
