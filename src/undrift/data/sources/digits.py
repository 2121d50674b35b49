"""Small images of handwritten digits, included in the package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from undrift.config import Config
from undrift.data.source import Source
from undrift.later import np, torch

WHITE = 16
"""The largest pixel value in the file."""

TEST_EVERY = 5
"""Every fifth image is for testing, in the order of the classes."""


@dataclass(frozen=True)
class Digits(Config):
    """1797 images of 8 x 8 pixels in 10 classes: 1437 to train on, 360 to test on.

    Pixels are scaled to [0, 1]; an image is a vector of 64. The split is stratified and the same
    for every seed.

    Reference: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits (the test part), UCI
    Machine Learning Repository, 1998, CC BY 4.0.
    """

    def load(self, seed: int) -> Source:
        file = resources.files("undrift.data.sources") / "digits.npz"
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
        inputs = torch.from_numpy(images.reshape(len(images), -1).astype(np.float32) / WHITE)
        targets = torch.from_numpy(labels.astype(np.int64))
        test = np.zeros(len(labels), dtype=bool)
        test[np.argsort(labels, kind="stable")[::TEST_EVERY]] = True
        parts = inputs[~test], targets[~test], inputs[test], targets[test]
        return Source(*parts, classes=10, class_names=tuple("0123456789"))
