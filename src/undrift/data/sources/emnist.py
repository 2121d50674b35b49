"""EMNIST: handwritten letters and digits in the shape of MNIST."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from undrift.config import choice, whole
from undrift.data.files.fetch import File, find, locate
from undrift.data.files.formats import idx, read_idx, zip_member
from undrift.data.source import Source
from undrift.data.sources.images import ImageSet, Labelled, flat, grey, idx_names
from undrift.later import np


class Split(NamedTuple):
    """Number of classes, label of the first one, number of training and test images."""

    classes: int
    first_label: int
    published: tuple[int, int]


SPLITS = {
    "letters": Split(26, 1, (124_800, 20_800)),
    "byclass": Split(62, 0, (697_932, 116_323)),
    "balanced": Split(47, 0, (112_800, 18_800)),
    "digits": Split(10, 0, (240_000, 40_000)),
}

PACKED = File(
    "gzip.zip",
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    sha256="fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
    md5="58c8d27c78d21e728a6bc7b3cc06412e",
    size=561_753_746,
)


@dataclass(frozen=True)
class EMNIST(ImageSet):
    """Handwritten characters of 28 x 28 pixels in four splits.

    split  "letters" (26 classes, both cases together), "byclass" (62: digits, upper and lower
           case), "balanced" (47) or "digits" (10)
    first  number of classes to keep, the first ones; FedDyn's and AdaBest's code uses 10 letters

    Images are upright, not transposed as in the files; labels start from 0. Batches are normalised
    by the mean and standard deviation of all training pixels of the classes kept. Files are read
    from the published gzip.zip, or unpacked.

    Reference: Cohen et al., EMNIST: an extension of MNIST to handwritten letters, 2017.
    """

    folder = "emnist"
    layouts = ("emnist/gzip", "gzip", "EMNIST/raw", "EMNIST/raw/gzip")
    files = (PACKED,)

    split: str = choice(*SPLITS)
    _: KW_ONLY
    first: int | None = whole(None, ge=1, optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        classes = SPLITS[self.split].classes
        if self.first is not None and self.first > classes:
            self.refuse(f"{self.split} has {classes} classes", split=self.split, first=self.first)

    def read(self) -> Source:
        split = SPLITS[self.split]
        x, y, test_x, test_y = self._arrays()
        train, test = self._labelled(x, y), self._labelled(test_x, test_y)
        published = split.published
        if self.first is not None and self.split != "byclass":  # all other splits are balanced
            published = tuple(n * self.first // split.classes for n in published)  # type: ignore[assignment]
        elif self.first is not None:
            published = len(train[1]), len(test[1])
        return self.assemble(train, test, self.first or split.classes, published)

    def instead(self, file: File) -> tuple[list[str], list[str]]:
        names = idx_names(f"emnist-{self.split}-", ("train", "test"))
        return names, [name.removesuffix(".gz") for name in names]

    def _arrays(self) -> list[np.ndarray]:
        """Training images and labels, test images and labels, as stored."""
        names, unpacked = self.instead(PACKED)
        limit = sum(SPLITS[self.split].published) * 28 * 28
        for some in (names, unpacked):
            paths = find(self.folder, some, self.layouts)
            if paths:
                return [read_idx(path, limit) for path in paths.values()]
        packed = locate(self.folder, self.files, self.layouts)[PACKED.name]
        arrays = []
        for name in names:
            with zip_member(packed, f"gzip/{name}") as (file, size):
                arrays.append(idx(file, size, f"{packed}, {name}", limit))
        return arrays

    def _labelled(self, images: np.ndarray, labels: np.ndarray) -> Labelled:
        """Upright images, and labels from 0, of the classes kept."""
        images = grey(images, 28, self)
        labels = flat(labels, self) - SPLITS[self.split].first_label
        if self.first is not None and len(images) == len(labels):
            kept = labels < self.first
            images, labels = images[kept], labels[kept]
        return images.swapaxes(2, 3), labels


def emnist_letters(first: int | None = None) -> EMNIST:
    """EMNIST(split="letters"): 26 classes, or the first 10 of them."""
    return EMNIST("letters", first=first)


def emnist_byclass(first: int | None = None) -> EMNIST:
    """EMNIST(split="byclass"): digits, upper-case and lower-case letters."""
    return EMNIST("byclass", first=first)


def emnist_balanced(first: int | None = None) -> EMNIST:
    """EMNIST(split="balanced"): 47 classes of digits and letters, of equal size."""
    return EMNIST("balanced", first=first)


def emnist_digits(first: int | None = None) -> EMNIST:
    """EMNIST(split="digits"): four times as many digits as in MNIST."""
    return EMNIST("digits", first=first)
