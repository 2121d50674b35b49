"""Sets of images, from small files in their published layouts and from the real ones."""

import csv
import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.real import real
from tests.data.server import serving
from tests.data.test_formats import idx_bytes
from tests.data.test_plain_pickle import python2
from undrift.config import UndriftError
from undrift.data import fetch
from undrift.data.formats import read_idx
from undrift.data.partition import Pachinko, federate
from undrift.data.source import Source
from undrift.data.sources import (
    CIFAR10,
    CIFAR100,
    EMNIST,
    MNIST,
    SOURCES,
    FashionMNIST,
    dataset,
    images,
)

MNIST_NAMES = [file.name for file in MNIST.files]
LETTERS = [
    f"emnist-letters-{part}-{kind}-ubyte.gz"
    for part in ("train", "test")
    for kind in ("images-idx3", "labels-idx1")
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path) -> Iterator[None]:
    """Nothing outside the test's folder is read, nothing is downloaded, nothing is kept."""
    fetch.use_data_dir(tmp_path)
    fetch.use_mirror("http://127.0.0.1:9")
    fetch.notice.cache_clear()
    images._read.cache_clear()
    yield
    fetch.use_data_dir(None)
    fetch.use_mirror(None)
    images._read.cache_clear()


def grey(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 28, 28), dtype=np.uint8)


def same(one: Source, two: Source) -> bool:
    names = ("inputs", "targets", "test_inputs", "test_targets")
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in names)


def write(folder: Path, content: dict[str, bytes]) -> None:
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def small(names: list[str], first_label: int = 0) -> dict[str, bytes]:
    """Twelve training and six test images in idx files."""
    arrays = []
    for n in (12, 6):
        arrays += [grey(n, n), (np.arange(n) % 3 + first_label).astype(np.uint8)]
    return {
        name: gzip.compress(idx_bytes(array)) for name, array in zip(names, arrays, strict=True)
    }


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_layouts(folder: str, packed: bool, tmp_path: Path) -> None:
    content = small(MNIST_NAMES)
    if not packed:
        content = {
            name.removesuffix(".gz"): gzip.decompress(data) for name, data in content.items()
        }
    write(tmp_path / folder, content)
    source = MNIST().load(0)
    assert source.inputs.shape == (12, 1, 28, 28)
    assert (source.inputs.dtype, source.targets.dtype) == (torch.uint8, torch.int64)
    assert np.array_equal(source.inputs[:, 0].numpy(), grey(12, 12))
    assert source.test_targets.tolist() == [0, 1, 2, 0, 1, 2]
    assert MNIST().load(1) is source  # arrays live once in memory


def test_counts_and_labels_are_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = small(MNIST_NAMES)
    write(tmp_path, content)
    MNIST().load(0)
    assert "12 training and 6 test images, the published set 60000 and 10000" in caplog.text
    for labels, says in (
        (np.arange(11), "12 training images but 11 labels"),
        (np.arange(12), "labels 0 to 11, expected 0 to 9"),
        (np.zeros((12, 2)), "one byte a label"),
    ):
        images._read.cache_clear()
        write(tmp_path, {MNIST_NAMES[1]: gzip.compress(idx_bytes(labels.astype(np.uint8)))})
        with pytest.raises(UndriftError, match=says):
            MNIST().load(0)
    write(tmp_path, {MNIST_NAMES[0]: gzip.compress(idx_bytes(np.zeros((3, 5), np.uint8)))})
    with pytest.raises(UndriftError, match=r"expected bytes of shape \(n, 28, 28\)"):
        MNIST().load(0)


def test_missing_files_are_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undrift.data.download.WAIT", 0)
    for made in (MNIST(), FashionMNIST(), EMNIST(), CIFAR10(), CIFAR100()):
        with pytest.raises(UndriftError, match=f"{made.folder}/{made.files[0].name}: cannot be"):
            made.load(0)


def emnist_zip(path: Path, content: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(f"gzip/{name}", data)


@pytest.mark.parametrize("layout", ["emnist", "emnist/gzip", ".", "zip", "unpacked"])
def test_emnist_layouts(layout: str, tmp_path: Path) -> None:
    content = small(LETTERS, first_label=1)
    if layout == "zip":
        emnist_zip(tmp_path / "gzip.zip", content)
    elif layout == "unpacked":
        plain = {name.removesuffix(".gz"): gzip.decompress(data) for name, data in content.items()}
        write(tmp_path, plain)
    else:
        write(tmp_path / layout, content)
    source = EMNIST().load(0)
    assert source.classes == 26
    assert source.targets.tolist() == [0, 1, 2] * 4
    assert np.array_equal(source.inputs[:, 0].numpy(), grey(12, 12).transpose(0, 2, 1))
    few = EMNIST(first=2).load(0)
    assert few.classes == 2
    assert few.targets.tolist() == [0, 1] * 4
    assert torch.equal(few.inputs, source.inputs[source.targets < 2])
    assert abs(few.transform(few.inputs, None).mean()) < 1e-4


def test_emnist_zip_without_the_split(tmp_path: Path) -> None:
    emnist_zip(tmp_path / "gzip.zip", small(LETTERS, first_label=1))
    with pytest.raises(UndriftError, match="no member gzip/emnist-digits-train-images"):
        EMNIST("digits").load(0)


COLOUR = np.random.default_rng(0).integers(0, 256, (20, 3072), dtype=np.uint8)


def tar_gz(path: Path, content: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def cifar10(kind: str) -> dict[str, bytes]:
    """CIFAR-10 with two images a batch, the label of image i being i % 10."""
    batches = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    content = {}
    for i, name in enumerate(batches):
        x, y = COLOUR[2 * i : 2 * i + 2], [2 * i % 10, (2 * i + 1) % 10]
        if kind == "bin":
            rows = np.concatenate([np.array(y, np.uint8)[:, None], x], axis=1)
            content[f"cifar-10-batches-bin/{name}.bin"] = rows.tobytes()
        else:
            content[f"cifar-10-batches-py/{name}"] = python2({b"labels": y, b"data": x})
    return content


def cifar100(kind: str, halves: dict[str, tuple[np.ndarray, ...]]) -> dict[str, bytes]:
    """Images, fine and coarse labels of each half in the published layouts."""
    content = {}
    for name, (x, fine, coarse) in halves.items():
        if kind == "bin":
            labels = np.stack([coarse, fine], axis=1).astype(np.uint8)
            content[f"cifar-100-binary/{name}.bin"] = np.concatenate([labels, x], axis=1).tobytes()
        else:
            table = {
                b"filenames": [b"image.png"] * len(x),
                b"batch_label": b"training batch 1 of 1",
                b"fine_labels": fine.tolist(),
                b"coarse_labels": coarse.tolist(),
                b"data": x,
            }
            content[f"cifar-100-python/{name}"] = python2(table)
    return content


SMALL100 = {
    "train": (COLOUR[:10], np.arange(10) * 7, np.arange(10) % 4),
    "test": (COLOUR[10:], np.arange(10) * 7, np.arange(10) % 4),
}


def place(folder: Path, layout: str, content: dict[str, bytes], archive: str) -> None:
    if layout == "tar":
        folder.mkdir(exist_ok=True)
        tar_gz(folder / archive, content)
    else:
        write(folder, content)


@pytest.mark.parametrize("layout", ["tar", "folder"])
@pytest.mark.parametrize("kind", ["python", "bin"])
@pytest.mark.parametrize("folder", [".", "cifar10"])
def test_cifar10_layouts(layout: str, kind: str, folder: str, tmp_path: Path) -> None:
    archive = "cifar-10-python.tar.gz" if kind == "python" else "cifar-10-binary.tar.gz"
    place(tmp_path / folder, layout, cifar10(kind), archive)
    source = CIFAR10().load(0)
    assert np.array_equal(source.inputs.numpy(), COLOUR[:10].reshape(-1, 3, 32, 32))
    assert source.targets.tolist() == list(range(10))
    assert source.test_targets.tolist() == [0, 1]
    assert source.classes == 10


@pytest.mark.parametrize("layout", ["tar", "folder"])
@pytest.mark.parametrize("kind", ["python", "bin"])
def test_cifar100_layouts(layout: str, kind: str, tmp_path: Path) -> None:
    archive = "cifar-100-python.tar.gz" if kind == "python" else "cifar-100-binary.tar.gz"
    place(tmp_path, layout, cifar100(kind, SMALL100), archive)
    source = CIFAR100().load(0)
    assert np.array_equal(source.test_inputs.numpy(), COLOUR[10:].reshape(-1, 3, 32, 32))
    assert source.targets.tolist() == (np.arange(10) * 7).tolist()
    assert source.classes == 100
    assert source.coarse is not None
    assert source.coarse[[0, 7, 14, 28]].tolist() == [0, 1, 2, 0]
    coarse = CIFAR100(labels="coarse").load(0)
    assert coarse.targets.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert (coarse.classes, coarse.coarse) == (20, None)


def test_cifar_that_is_not_what_it_should_be(tmp_path: Path) -> None:
    content = cifar10("python")
    first = "cifar-10-batches-py/data_batch_1"
    for wrong, says in (
        ({b"labels": [0, 1], b"data": COLOUR[:2, :100]}, "'data' is no array of bytes"),
        ({b"labels": [0, 1], b"data": [1, 2]}, "'data' is no array of bytes"),
        ({b"labels": [0], b"data": COLOUR[:2]}, "'labels' is no list of 2 labels"),
        ({b"labels": [0, b"x"], b"data": COLOUR[:2]}, "'labels' is no list of 2 labels"),
        ({b"data": COLOUR[:2]}, "'labels' is no list of 2 labels"),
    ):
        write(tmp_path, content | {first: python2(wrong)})
        with pytest.raises(UndriftError, match=says):
            CIFAR10().load(0)
    write(tmp_path, content | {first: b"cos\nsystem\n(S'true'\ntR."})
    with pytest.raises(UndriftError, match=r"asks for 'os.system'"):
        CIFAR10().load(0)
    content.pop(first)
    for path in (tmp_path / "cifar-10-batches-py").iterdir():
        path.unlink()
    tar_gz(tmp_path / "cifar-10-python.tar.gz", content)
    with pytest.raises(UndriftError, match="data_batch_1 is not in it"):
        CIFAR10().load(0)


def test_a_fine_label_with_two_coarse_ones(tmp_path: Path) -> None:
    x = COLOUR[:2]
    half = (x, np.array([5, 5]), np.array([1, 2]))
    write(tmp_path, cifar100("bin", {"train": half, "test": half}))
    with pytest.raises(UndriftError, match="two coarse ones"):
        CIFAR100().load(0)


def test_names() -> None:
    assert dataset("emnist-letters") == dataset("EMNIST_Letters()") == EMNIST("letters")
    assert dataset("emnist-letters(first=10)") == EMNIST(first=10)
    assert dataset("cifar-10") == CIFAR10()
    assert dataset("fashion-mnist") == FashionMNIST() != MNIST()
    for name in SOURCES:
        assert dataset(repr(dataset(name))) == dataset(name)
    assert repr(CIFAR100("coarse", augment="none")) == "CIFAR100(labels='coarse', augment='none')"
    for bad, says in (
        ("mnits", "did you mean 'mnist'"),
        ("emnist(first=27)", "letters has 26 classes"),
        ("emnist('bymerge')", "split must be one of"),
        ("cifar10(augment=None)", "augment must be one of"),
        ("", "not a valid data set"),
    ):
        with pytest.raises(UndriftError, match=says):
            dataset(bad)


# The real files.


def pixels(image: torch.Tensor, row: int, columns: slice) -> list[int]:
    return image[0, row, columns].tolist()


def test_real_mnist() -> None:
    fetch.use_data_dir(real(*(f"mnist/{name}" for name in MNIST_NAMES)))
    for file in MNIST.files:
        assert fetch.digest(fetch.data_dir() / "mnist" / file.name) == file.md5
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
    monkeypatch.setattr("undrift.data.download.WAIT", 0)
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
        rows = list(csv.DictReader(io.TextIOWrapper(archive.open("index.csv"))))
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
