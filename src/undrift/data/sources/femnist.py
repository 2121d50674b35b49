"""FEMNIST: handwritten characters, one client per writer."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from undrift.config import UndriftError, real, whole
from undrift.data.files.fetch import data_dir
from undrift.data.files.formats import read_bytes, reading, refuse
from undrift.data.partition.split import training_mask
from undrift.data.source import Source
from undrift.data.sources.file_set import FileSet
from undrift.data.transforms import WHITE, Normalise
from undrift.later import np, torch

CLASSES, SIDE = 62, 28

Drawn: TypeAlias = "tuple[np.ndarray, np.ndarray]"
"""Images (n, 28, 28) as bytes, ink 255 and paper 0, and their labels."""


@dataclass(frozen=True)
class FEMNIST(FileSet):
    """Images of 28 x 28 pixels in 62 classes: digits, upper-case letters, lower-case letters.

    writers  number of writers, the first by file and name; None: all
    minimum  smallest number of images of a writer; others are left out
    share    share of a writer's images to train on, if the files are not split: random, but the
             same for every seed

    The files are LEAF's, in its folders `train` and `test`, else in `all_data`, in the folder
    femnist (or femnist/data) of the data folder. LEAF makes them from NIST's archives:
    `./preprocess.sh -s niid --sf 1.0 -k 15 -t sample --tf 0.8`. In them, paper is 1 and ink 0; the
    input here is 1 - x.

    Reference: Caldas et al., LEAF: a benchmark for federated settings, 2018.
    """

    folder = "femnist"
    files = ()
    layouts = ("femnist/data",)

    _: KW_ONLY
    writers: int | None = whole(3000, ge=1, optional=True)
    minimum: int = whole(15, ge=2)
    share: float = real(0.8, gt=0, lt=1)

    def read(self) -> Source:
        train: list[Drawn] = []
        test: list[Drawn] = []
        names: set[str] = set()
        for name, halves in self._writers():
            if name in names:
                raise UndriftError(f"{self}: writer {name} is in two files; keep one of them")
            if sum(len(labels) for _, labels in halves) < self.minimum:
                continue
            names.add(name)
            for half, drawn in zip((train, test), halves, strict=True):
                half.append(drawn)
            if len(names) == self.writers:
                break
        if not names or len(names) < (self.writers or 0):
            raise UndriftError(
                f"{self}: the files have only {len(names)} writers with {self.minimum} images or "
                f"more; give FEMNIST(writers=None) to take all, or a smaller minimum"
            )
        sizes = [len(labels) for _, labels in train]
        (inputs, targets), (test_inputs, test_targets) = (_joined(half) for half in (train, test))
        return Source(
            inputs,
            targets,
            test_inputs,
            test_targets,
            classes=CLASSES,
            client_ids=np.repeat(np.arange(len(names), dtype=np.int32), sizes),
            transform=Normalise((0.0,), (1.0,)),
        )

    def _writers(self) -> Iterator[tuple[str, tuple[Drawn, Drawn]]]:
        """Name, training images and test images of each writer."""
        roots = [data_dir() / folder for folder in (self.folder, *self.layouts)]
        for root in roots:
            train, test = (sorted((root / half).glob("*.json")) for half in ("train", "test"))
            if len(train) != len(test):
                raise UndriftError(
                    f"{root}: {len(train)} files in train, {len(test)} in test; LEAF writes the "
                    "same number, so run it again"
                )
            for path, other in zip(train, test, strict=True):
                first, second = read_leaf(path), read_leaf(other)
                if first.keys() != second.keys():
                    raise UndriftError(
                        f"{path} and {other}: the writers are not the same; run LEAF again"
                    )
                for name in sorted(first):
                    yield name, (first[name], second[name])
            whole = [] if train else sorted((root / "all_data").glob("*.json"))
            for path in whole:
                for name, (images, labels) in sorted(read_leaf(path).items()):
                    key = zlib.crc32(name.encode())
                    kept = training_mask(np.zeros(len(labels)), self.share, key)
                    yield name, ((images[kept], labels[kept]), (images[~kept], labels[~kept]))
            if train or whole:
                return
        raise UndriftError(
            f"FEMNIST: expected LEAF's files *.json in {roots[0] / 'train'} and "
            f"{roots[0] / 'test'}, or in {roots[0] / 'all_data'}, found none; make them with LEAF "
            f"(`./preprocess.sh -s niid --sf 1.0 -k 15 -t sample --tf 0.8` in its data/femnist), "
            f"or give the folder above with --data-dir"
        )


def read_leaf(path: Path) -> dict[str, Drawn]:
    """Images and labels by writer, from one of LEAF's files.

    Pixels become bytes writer by writer while the file is parsed, to save memory.
    """

    def compact(entry: dict[str, Any]) -> Any:
        return _drawn(entry, path) if "x" in entry and "y" in entry else entry

    with reading(path, "LEAF JSON"):
        content = json.loads(read_bytes(path), object_hook=compact)
        if not isinstance(content, dict) or not isinstance(content.get("user_data"), dict):
            raise refuse(path, "LEAF JSON", "no object with users, num_samples and user_data")
        writers: dict[str, Drawn] = content["user_data"]
        sizes = dict(zip(content["users"], content["num_samples"], strict=True))
        for name, size in sizes.items():
            if not isinstance(writers.get(name), tuple) or len(writers[name][1]) != size:
                raise refuse(path, "LEAF JSON", f"writer {name} does not have {size} x and y")
        return {name: writers[name] for name in sizes}


def _drawn(entry: dict[str, Any], path: Path) -> Drawn:
    paper = np.asarray(entry["x"], dtype=np.float64)
    labels = np.asarray(entry["y"])
    if not len(labels) and not len(paper):
        return np.zeros((0, SIDE, SIDE), np.uint8), np.zeros(0, np.int64)
    if paper.shape != (len(labels), SIDE * SIDE) or labels.ndim != 1:
        found = f"x of shape {paper.shape} and y of shape {labels.shape}"
        raise refuse(path, "LEAF JSON", f"expected rows of {SIDE * SIDE} pixels, found {found}")
    if not ((paper >= 0) & (paper <= 1)).all():
        raise refuse(path, "LEAF JSON", "pixels are not between 0 and 1")
    if labels.dtype.kind != "i" or labels.min() < 0 or labels.max() >= CLASSES:
        raise refuse(path, "LEAF JSON", f"labels are not whole numbers from 0 to {CLASSES - 1}")
    images = np.rint(WHITE * (1 - paper)).astype(np.uint8)
    return images.reshape(-1, SIDE, SIDE), labels.astype(np.int64)


def _joined(half: list[Drawn]) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.from_numpy(np.concatenate([images for images, _ in half]))
    return images[:, None], torch.from_numpy(np.concatenate([labels for _, labels in half]))
