"""Base class of image data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from undrift.config import UndriftError
from undrift.data.federated import Transform
from undrift.data.files.fetch import data_dir, notice
from undrift.data.source import Source
from undrift.data.sources.file_set import FileSet
from undrift.data.transforms import WHITE, Normalise
from undrift.later import np, torch

Labelled: TypeAlias = "tuple[np.ndarray, np.ndarray]"
"""Images as bytes (n, channels, height, width), and their labels."""


class ImageSet(FileSet):
    """Base of image data sets."""

    def assemble(
        self,
        train: Labelled,
        test: Labelled,
        classes: int,
        published: tuple[int, int],
        transform: Transform | None = None,
        coarse: np.ndarray | None = None,
        class_names: tuple[str, ...] | None = None,
    ) -> Source:
        """Checked samples; by default, normalised by mean and deviation of the training pixels."""
        for part, (images, labels) in (("training", train), ("test", test)):
            if len(images) != len(labels):
                count = f"{len(images)} {part} images but {len(labels)} labels"
                raise UndriftError(f"{self}: {count}; fetch the files again")
            if not len(labels) or labels.min() < 0 or labels.max() >= classes:
                seen = f"{labels.min()} to {labels.max()}" if len(labels) else "none"
                raise UndriftError(
                    f"{self}: {part} labels {seen}, expected 0 to {classes - 1}; fetch the files "
                    "again"
                )
        counts = len(train[0]), len(test[0])
        if counts != published:
            notice(
                f"{self} in {data_dir()} has {counts[0]} training and {counts[1]} test images, the "
                f"published set {published[0]} and {published[1]}: results do not compare with "
                "published ones"
            )
        inputs, targets, test_inputs, test_targets = (
            torch.from_numpy(array) for array in (*train, *test)
        )
        transform = transform or normalise(train[0])
        return Source(
            inputs,
            targets.long(),
            test_inputs,
            test_targets.long(),
            classes,
            coarse=coarse,
            transform=transform,
            class_names=class_names,
        )


def normalise(images: np.ndarray) -> Normalise:
    """The transform to mean 0 and standard deviation 1 over all pixels of the images."""
    counts = np.zeros(WHITE + 1, dtype=np.int64)
    for start in range(0, len(images), 4096):
        counts += np.bincount(images[start : start + 4096].reshape(-1), minlength=WHITE + 1)
    values = np.arange(WHITE + 1) / WHITE
    shares = counts / counts.sum()
    mean = float(values @ shares)
    std = float(((values - mean) ** 2 @ shares) ** 0.5)
    return Normalise((mean,), (std or 1.0,))


def grey(images: np.ndarray, side: int, name: object) -> np.ndarray:
    """Images of one channel (n, 1, side, side); refuses other types and sizes."""
    if images.dtype != np.uint8 or images.shape[1:] != (side, side):
        shape = f"{images.dtype} of shape {images.shape}"
        raise UndriftError(f"{name}: expected bytes of shape (n, {side}, {side}), found {shape}")
    return images[:, None]


def flat(labels: np.ndarray, name: object) -> np.ndarray:
    """Labels as int64; refuses anything but one byte per label."""
    if labels.dtype != np.uint8 or labels.ndim != 1:
        raise UndriftError(
            f"{name}: expected one byte per label, found {labels.dtype} of shape {labels.shape}"
        )
    return labels.astype(np.int64)


def idx_names(prefix: str, parts: Sequence[str]) -> list[str]:
    """File names of images and labels of each part, as in MNIST, gzipped."""
    kinds = ("images-idx3", "labels-idx1")
    return [f"{prefix}{part}-{kind}-ubyte.gz" for part in parts for kind in kinds]
