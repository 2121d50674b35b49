"""Slabs: files of equal slots, for the records of a `memory.Store` that do not fit into memory.

Crash safety is the store's task: it decides which slot is free, and never overwrites one that an
index refers to. `write` is durable only after `sync`. A crash may leave a slot half written, which
the store detects by the checksum in its index.
"""

from __future__ import annotations

import math
import os
import tempfile
import weakref
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from undrift.system.files import Damaged, writing


@dataclass(frozen=True)
class Field:
    """Name, dtype and shape of a tensor that all records have."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Slab:
    """A file of equal slots, one tensor in each; a temporary file if there is no folder."""

    def __init__(self, field: Field, folder: Path | None) -> None:
        self.field = field
        self.nbytes = field.nbytes
        self._path = folder and folder / f"{field.name}.slab"
        with writing(self):
            if self._path is None:
                with tempfile.TemporaryFile() as file:  # already unlinked; the duplicate keeps it
                    self._file = os.dup(file.fileno())
            else:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        self._closing = weakref.finalize(self, os.close, self._file)

    def __str__(self) -> str:
        return str(self._path or f"temporary file of {self.field.name}")

    def __len__(self) -> int:
        """Number of slots in the file, including a last one half written."""
        return math.ceil(os.fstat(self._file).st_size / max(self.nbytes, 1))

    def close(self) -> None:
        self._closing()
        self._file = -1  # invalid: the system may give the old number to another file

    def write(self, slot: int, tensor: Tensor) -> int:
        """Write a tensor; returns its CRC-32."""
        data, done = tensor.reshape(-1).view(torch.uint8).numpy().data, 0
        with writing(self):
            while done < self.nbytes:
                done += os.pwrite(self._file, data[done:], slot * self.nbytes + done)
        return zlib.crc32(data)

    def read(self, client: int, slot: int) -> tuple[Tensor, int]:
        """The tensor in a slot, and the CRC-32 of what was read; the caller compares it."""
        tensor, done = torch.empty(self.nbytes, dtype=torch.uint8), 0
        data = tensor.numpy().data
        while done < self.nbytes:
            try:
                count = os.preadv(self._file, [data[done:]], slot * self.nbytes + done)
            except OSError as error:
                raise self.damage(client, str(error)) from error
            if count == 0:
                raise self.damage(client, "the file ends before it")
            done += count
        return tensor.view(self.field.dtype).reshape(self.field.shape), zlib.crc32(data)

    def sync(self) -> None:
        """Wait until all writes are on disk (fsync)."""
        with writing(self):
            os.fsync(self._file)

    def damage(self, client: int, reason: str) -> Damaged:
        return Damaged(
            f"{self}: the record of client {client} cannot be read ({reason}); restore the file "
            "from a backup, or resume from another checkpoint"
        )
