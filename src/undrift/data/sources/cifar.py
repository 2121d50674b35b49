"""CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

from undrift.config import UndriftError, choice
from undrift.data.federated import Transform
from undrift.data.files.fetch import File, find, locate
from undrift.data.files.formats import read_bytes, rows, tar_files
from undrift.data.files.plain_pickle import plain_pickle
from undrift.data.source import Source
from undrift.data.sources.images import ImageSet
from undrift.data.transforms import Chain, FlipAndCrop, Normalise
from undrift.later import np

HOME = "https://cave.cs.toronto.edu/kriz"
PIXELS = 3 * 32 * 32
PUBLISHED = (50_000, 10_000)
LIMIT = sum(PUBLISHED) * (PIXELS + 256)
"""Largest total size of an archive's files, bytes; an image has about 30 beside its pixels."""

Table: TypeAlias = "tuple[np.ndarray, np.ndarray]"
"""Images, and labels with one column per kind."""

FEDGBO = Chain((Normalise((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)), FlipAndCrop()))


class Cifar(ImageSet):
    """Base of both: the layouts of their files.

    stem      name of the archives
    unpacked  folders in the archives: pickles ("python"), and rows of bytes ("binary")
    parts     files of the training and of the test part
    columns   names of the labels in the pickles, in their order in the rows of bytes
    plain     AdaBest's normalisation
    """

    stem: ClassVar[str]
    unpacked: ClassVar[tuple[str, str]]
    parts: ClassVar[tuple[Sequence[str], Sequence[str]]]
    columns: ClassVar[tuple[str, ...]]
    plain: ClassVar[Normalise]
    augment: str

    def transform(self) -> Transform:
        """The transform of the paper's code that `augment` names."""
        if self.augment == "fedgbo":
            return FEDGBO
        if self.augment == "adabest":
            return Chain((self.plain, FlipAndCrop(crop=0.5)))
        return self.plain

    def halves(self) -> tuple[Table, Table]:
        """The training and the test part, from the first layout found."""
        names, raw = self._names()
        for wanted, read in ((names, self._pickled), (raw, self._rows)):
            paths = find(self.folder, [*wanted[0], *wanted[1]], self.layouts)
            if paths:
                content = {name: read(read_bytes(path), path) for name, path in paths.items()}
                return _join(content, wanted[0]), _join(content, wanted[1])
        packed = find(self.folder, [self._binary], self.layouts)
        if packed and not find(self.folder, [self.files[0].name], self.layouts):
            return self._unpack(next(iter(packed.values())), raw, self._rows)
        located = locate(self.folder, self.files, self.layouts)
        return self._unpack(next(iter(located.values())), names, self._pickled)

    def instead(self, file: File) -> Sequence[Sequence[str]]:
        return [*([*train, *test] for train, test in self._names()), [self._binary]]

    @property
    def _binary(self) -> str:
        return f"{self.stem}-binary.tar.gz"

    def _names(self) -> tuple[list[list[str]], list[list[str]]]:
        """The training and the test files, pickled and as rows of bytes."""
        python, binary = self.unpacked
        return (
            [[f"{python}/{name}" for name in half] for half in self.parts],
            [[f"{binary}/{name}.bin" for name in half] for half in self.parts],
        )

    def _unpack(
        self, archive: Path, wanted: list[list[str]], read: Callable[[bytes, object], Table]
    ) -> tuple[Table, Table]:
        everything = [*wanted[0], *wanted[1]]
        content = {
            name: read(data, f"{archive}, {name}")
            for name, data in tar_files(archive, everything, LIMIT)
        }
        lost = [name for name in everything if name not in content]
        if lost:
            raise UndriftError(f"{archive}: {lost[0]} is missing; fetch the archive again")
        return _join(content, wanted[0]), _join(content, wanted[1])

    def _pickled(self, data: bytes, name: object) -> Table:
        loaded = plain_pickle(data, name)
        images = loaded.get("data")
        if (
            not isinstance(images, np.ndarray)
            or images.dtype != np.uint8
            or images.shape[1:] != (PIXELS,)
        ):
            raise UndriftError(
                f"{name}: 'data' must be an array of bytes of shape (n, {PIXELS}); fetch it again"
            )
        columns = [loaded.get(column) for column in self.columns]
        for column, labels in zip(self.columns, columns, strict=True):
            numbers = isinstance(labels, list) and all(
                type(label) is int and 0 <= label < 256 for label in labels
            )
            if not numbers or len(labels or ()) != len(images):
                raise UndriftError(
                    f"{name}: '{column}' must be a list of {len(images)} labels; fetch it again"
                )
        return images, np.array(columns, dtype=np.int64).T

    def _rows(self, data: bytes, name: object) -> Table:
        width = len(self.columns)
        table = rows(data, width + PIXELS, name)
        return table[:, width:], table[:, :width].astype(np.int64)


def _join(content: dict[str, Table], names: Sequence[str]) -> Table:
    images = np.concatenate([content[name][0] for name in names])
    return images.reshape(-1, 3, 32, 32), np.concatenate([content[name][1] for name in names])


@dataclass(frozen=True)
class CIFAR10(Cifar):
    """Colour photographs of 32 x 32 pixels in 10 classes: 50,000 to train on, 10,000 to test on.

    augment  "adabest" normalises, mirrors each image with probability 0.5 and shifts it with
             probability 0.5 by up to 4 pixels; "fedgbo" normalises with its own constants, mirrors
             with probability 0.5 and shifts all; "none" normalises with AdaBest's constants

    Shifted images are filled with zeros, the mean colour.

    Reference: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """

    folder = "cifar10"
    files = (
        File(
            "cifar-10-python.tar.gz",
            f"{HOME}/cifar-10-python.tar.gz",
            sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            md5="c58f30108f718f92721af3b95e74349a",
            size=170_498_071,
        ),
    )
    stem = "cifar-10"
    unpacked = ("cifar-10-batches-py", "cifar-10-batches-bin")
    parts = (tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",))
    columns = ("labels",)
    plain = Normalise((0.491, 0.482, 0.447), (0.247, 0.243, 0.262))

    _: KW_ONLY
    augment: str = choice("adabest", "fedgbo", "none")

    def read(self) -> Source:
        (x, y), (test_x, test_y) = self.halves()
        train, test = (x, y[:, 0]), (test_x, test_y[:, 0])
        return self.assemble(train, test, 10, PUBLISHED, self.transform())


@dataclass(frozen=True)
class CIFAR100(Cifar):
    """Colour photographs of 32 x 32 pixels in 100 classes: 50,000 to train on, 10,000 to test on.

    labels   "fine" (100 classes) or "coarse" (20, of five fine ones each)
    augment  "adabest", "fedgbo" or "none", as in CIFAR10

    With fine labels, the partition may be `Pachinko`.

    Reference: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """

    folder = "cifar100"
    files = (
        File(
            "cifar-100-python.tar.gz",
            f"{HOME}/cifar-100-python.tar.gz",
            sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            size=169_001_437,
        ),
    )
    stem = "cifar-100"
    unpacked = ("cifar-100-python", "cifar-100-binary")
    parts = (("train",), ("test",))
    columns = ("coarse_labels", "fine_labels")
    plain = Normalise((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))

    labels: str = choice("fine", "coarse")
    _: KW_ONLY
    augment: str = choice("adabest", "fedgbo", "none")

    def read(self) -> Source:
        (x, y), (test_x, test_y) = self.halves()
        fine = self.labels == "fine"
        train, test = (x, y[:, int(fine)]), (test_x, test_y[:, int(fine)])
        coarse = self._coarse(y) if fine else None
        classes = 100 if fine else 20
        return self.assemble(train, test, classes, PUBLISHED, self.transform(), coarse)

    def _coarse(self, pairs: np.ndarray) -> np.ndarray:
        """The coarse label of each fine one."""
        table = np.unique(pairs, axis=0)
        coarse = np.full(100, -1, dtype=np.int64)
        known = table[table[:, 1] < 100]
        coarse[known[:, 1]] = known[:, 0]
        if len(known) != (coarse >= 0).sum():
            raise UndriftError(f"{self}: a fine label has two coarse ones; fetch the files again")
        return coarse
