"""Partition files, to share and reuse partitions: `Saved(path=...)`.

A safetensors file with two arrays, `order` and `offsets`, such that client i holds the samples
`order[offsets[i] : offsets[i + 1]]`, and metadata. Its hash depends only on which client holds
which samples and on the labels, not on the file name, the description or the integer type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from undrift.config import UndriftError
from undrift.later import np
from undrift.system.files import replace_file

FORMAT = 1
DIGITS = 16
"""Length of a hash, in hex digits."""


@dataclass(frozen=True, eq=False)
class PartitionFile:
    """The content of a partition file.

    order, offsets  client i holds the samples `order[offsets[i] : offsets[i + 1]]`
    samples         number of training samples in the data set, including unused ones
    labels          hash of their labels
    about           description
    """

    order: np.ndarray
    offsets: np.ndarray
    samples: int
    labels: str
    about: str = ""

    @classmethod
    def of(cls, parts: Sequence[np.ndarray], labels: np.ndarray, about: str = "") -> PartitionFile:
        """From the sample indices of each client and the labels of all samples."""
        order = np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])
        offsets = np.cumsum([0, *map(len, parts)])
        return cls(order, offsets, len(labels), labels_hash(labels), about)

    @property
    def hash(self) -> str:
        """The partition's identity."""
        digest = hashlib.sha256(f"{self.samples} {self.labels}".encode())
        for array in (self.offsets, self.order):
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return digest.hexdigest()[:DIGITS]

    @property
    def parts(self) -> list[np.ndarray]:
        """The sample indices of each client."""
        return np.split(self.order, self.offsets[1:-1])

    def save(self, path: str | Path) -> Path:
        """Write to a file, or into a folder under a name with the hash; returns the path."""
        from safetensors.numpy import save  # imports NumPy

        path = Path(path)
        if path.is_dir():
            path = path / f"partition-{self.hash}.safetensors"
        smallest = np.min_scalar_type(max(self.samples, 1))
        arrays = {"order": self.order.astype(smallest), "offsets": self.offsets.astype(smallest)}
        facts = {
            "format": FORMAT,
            "hash": self.hash,
            "samples": self.samples,
            "labels": self.labels,
            "about": self.about,
        }
        replace_file(path, save(arrays, {"undrift-partition": json.dumps(facts)}))
        return path

    @classmethod
    def load(cls, path: str | Path) -> PartitionFile:
        """Read a file and check its hash and its content."""
        with _opened(path) as file:
            facts = _facts(path, file)
            try:
                order, offsets = (_row(path, file, name) for name in ("order", "offsets"))
            except SafetensorError as error:
                raise _broken(path, str(error)) from None
        found = cls(order, offsets, facts["samples"], facts["labels"], facts["about"])
        if found.hash != facts["hash"]:
            raise _broken(path, f"its content has the hash {found.hash}, not {facts['hash']}")
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(order):
            raise _broken(path, "its offsets do not fit the samples")
        if (np.diff(offsets) < 0).any():
            raise _broken(path, "its offsets decrease")
        if len(order) and not 0 <= order.min() <= order.max() < found.samples:
            raise _broken(
                path,
                f"its samples must be from 0 to {found.samples - 1}, "
                f"found {order.min()} to {order.max()}",
            )
        if len(np.unique(order)) < len(order):
            raise _broken(path, "it lists a sample twice")
        return found

    def check(self, path: str, labels: np.ndarray) -> None:
        """Refuse data other than those that the partition was made for."""
        known = f" ({self.about})" if self.about else ""
        if self.samples != len(labels):
            raise UndriftError(
                f"{path}{known} is a partition of {self.samples} samples, "
                f"but these data have {len(labels)}"
            )
        if self.labels != labels_hash(labels):
            raise UndriftError(
                f"{path}{known} is a partition of other data: the labels of the {len(labels)} "
                "samples differ, or their order; use the data set and seed it was made for"
            )


def read_hash(path: str | Path) -> str:
    """The hash in a file's metadata, without reading or checking the rest."""
    with _opened(path) as file:
        return str(_facts(path, file)["hash"])


def labels_hash(labels: np.ndarray) -> str:
    """A hash of labels that does not depend on their integer or float type."""
    plain = np.ascontiguousarray(labels, dtype="<f8" if labels.dtype.kind == "f" else "<i8")
    return hashlib.sha256(f"{plain.shape}".encode() + plain.tobytes()).hexdigest()[:DIGITS]


def _opened(path: str | Path) -> Any:
    try:
        return safe_open(path, framework="numpy")
    except FileNotFoundError:
        raise UndriftError(
            f"there is no partition file {str(path)!r}; make one with undrift partition show --save"
        ) from None
    except (OSError, SafetensorError) as error:
        raise _broken(path, str(error)) from None


def _row(path: str | Path, file: Any, name: str) -> np.ndarray:
    """One of the arrays as int64; the type is checked first, since NumPy lacks some of them."""
    found = file.get_slice(name)
    kind, shape = found.get_dtype(), found.get_shape()
    if kind[0] not in "IU" or len(shape) != 1:
        raise _broken(path, f"{name} must be a row of integers, found {kind} of shape {shape}")
    row: np.ndarray = file.get_tensor(name).astype(np.int64)
    return row


def _facts(path: str | Path, file: Any) -> dict[str, Any]:
    try:
        facts = json.loads((file.metadata() or {}).get("undrift-partition", "null"))
    except (ValueError, RecursionError):
        facts = None
    wanted = {"format": int, "hash": str, "samples": int, "labels": str, "about": str}
    if not isinstance(facts, dict) or any(type(facts.get(k)) is not v for k, v in wanted.items()):
        raise _broken(path, "its metadata are missing or incomplete")
    if facts["format"] != FORMAT:
        raise _broken(path, f"its format is {facts['format']}; this version reads {FORMAT}")
    return facts


def _broken(path: str | Path, reason: str) -> UndriftError:
    return UndriftError(
        f"{str(path)!r} is not a valid partition file: {reason}; write it again with "
        "undrift partition show --save"
    )
