"""Sets of images, from small files in their published layouts."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.test_formats import idx_bytes
from tests.data.test_plain_pickle import python2
from undrift.config import UndriftError
from undrift.data.files import fetch
from undrift.data.source import Source
from undrift.data.sources import (
    CIFAR10,
    CIFAR100,
    EMNIST,
    MNIST,
    SOURCES,
    FashionMNIST,
    dataset,
    file_set,
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
    file_set._read.cache_clear()
    yield
    fetch.use_data_dir(None)
    fetch.use_mirror(None)
    file_set._read.cache_clear()


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
    plain = MNIST(normalised=False).load(0)
    shown = plain.transform(plain.inputs)
    assert torch.equal(shown, plain.inputs / 255)


def test_counts_and_labels_are_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = small(MNIST_NAMES)
    write(tmp_path, content)
    MNIST().load(0)
    assert "12 training and 6 test images, the published set 60000 and 10000" in caplog.text
    for labels, says in (
        (np.arange(11), "12 training images but 11 labels"),
        (np.arange(12), "labels 0 to 11, expected 0 to 9"),
        (np.zeros((12, 2)), "one byte per label"),
    ):
        file_set._read.cache_clear()
        write(tmp_path, {MNIST_NAMES[1]: gzip.compress(idx_bytes(labels.astype(np.uint8)))})
        with pytest.raises(UndriftError, match=says):
            MNIST().load(0)
    write(tmp_path, {MNIST_NAMES[0]: gzip.compress(idx_bytes(np.zeros((3, 5), np.uint8)))})
    with pytest.raises(UndriftError, match=r"expected bytes of shape \(n, 28, 28\)"):
        MNIST().load(0)


def test_missing_files_are_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undrift.data.files.download.WAIT", 0)
    fetch.use_data_dir(tmp_path, download=True)
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
        ({b"labels": [0, 1], b"data": COLOUR[:2, :100]}, "'data' must be an array of bytes"),
        ({b"labels": [0, 1], b"data": [1, 2]}, "'data' must be an array of bytes"),
        ({b"labels": [0], b"data": COLOUR[:2]}, "'labels' must be a list of 2 labels"),
        ({b"labels": [0, b"x"], b"data": COLOUR[:2]}, "'labels' must be a list of 2 labels"),
        ({b"data": COLOUR[:2]}, "'labels' must be a list of 2 labels"),
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
    with pytest.raises(UndriftError, match="data_batch_1 is missing"):
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
    for name in SOURCES.keys() - {"table"}:  # which has no defaults
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
