"""Readers of untrusted data files.

No reader executes code, follows links or unpacks to disk. Sizes in headers are checked against the
size of the file before memory is allocated. Every fault is an `UndriftError`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from undrift.config import UndriftError
from undrift.later import np

LIMIT = 1 << 31
"""Largest size of a file, or of a member of an archive, after decompression, bytes."""

RATIO = 1032
"""Largest compression ratio of deflate."""

LARGE = 1 << 28
"""Arrays of at least this many bytes are memory-mapped."""

CHUNK = 1 << 20
"""Bytes per read."""

IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


@contextmanager
def reading(name: object, kind: str) -> Iterator[None]:
    """Inside the block, any exception becomes an `UndriftError` about the file."""
    try:
        yield
    except UndriftError:
        raise
    except FileNotFoundError:
        raise UndriftError(f"{name}: there is no such file") from None
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise refuse(name, kind, why) from None


def refuse(name: object, kind: str, why: str) -> UndriftError:
    """The error for a file with invalid content."""
    return UndriftError(f"{name}: not a valid {kind} file ({why}); fetch it again")


def memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """An uninitialised array; if large, in a temporary file, so that its pages can be evicted."""
    if math.prod(shape) * dtype.itemsize < LARGE:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def read_idx(path: Path, limit: int = LIMIT) -> np.ndarray:
    """The array in an idx file, the format of MNIST, plain or gzipped."""
    with reading(path, "idx"), path.open("rb") as file:
        return idx(file, path.stat().st_size, path, limit)


def idx(file: BinaryIO, size: int, name: object, limit: int = LIMIT) -> np.ndarray:
    """The array, of at most `limit` bytes, in an open idx file of `size` bytes, maybe gzipped."""
    with reading(name, "idx"):
        start = file.read(2)
        file.seek(0)
        if start != b"\x1f\x8b":
            return _idx(file, size, name, limit, exact=True)
        with gzip.GzipFile(fileobj=file) as unpacked:
            return _idx(cast(BinaryIO, unpacked), RATIO * size, name, limit, exact=False)


def _idx(file: BinaryIO, room: int, name: object, limit: int, exact: bool) -> np.ndarray:
    """The array in an uncompressed stream of `room` bytes, or of at most `room` if not `exact`."""
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in IDX_TYPES:
        raise refuse(name, "idx", f"it starts with {magic.hex(' ') or 'nothing'}")
    dtype, dims = np.dtype(IDX_TYPES[magic[2]]), magic[3]
    header = file.read(4 * dims)
    if len(header) < 4 * dims or not 1 <= dims <= 4:
        raise refuse(name, "idx", f"a header of {dims} dimensions and {len(header)} bytes")
    shape = tuple(int(side) for side in np.frombuffer(header, ">u4"))
    wanted = math.prod(shape) * dtype.itemsize
    left = room - 4 - len(header)
    if wanted > left or (exact and wanted < left):
        raise refuse(name, "idx", f"the shape {shape} needs {wanted} bytes, there are {left}")
    if wanted > limit:
        raise refuse(name, "idx", f"the shape {shape} needs {wanted} bytes, more than {limit}")
    array = memory(shape, dtype)
    view = array.reshape(-1).view(np.uint8)
    done = 0
    while done < wanted:
        piece = file.read(min(CHUNK, wanted - done))
        if not piece:
            raise refuse(name, "idx", f"it ends after {done} of {wanted} bytes")
        view[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    if file.read(1):
        raise refuse(name, "idx", f"more than the {wanted} bytes of its shape {shape}")
    return array.astype(dtype.newbyteorder("="), copy=False)


def read_bytes(path: Path, limit: int = LIMIT) -> bytes:
    """A whole file, of at most `limit` bytes."""
    with reading(path, "data"):
        if path.stat().st_size > limit:
            raise refuse(path, "data", f"{path.stat().st_size} bytes, at most {limit} expected")
        return path.read_bytes()


def read_rows(path: Path, width: int) -> np.ndarray:
    """A file of rows of `width` bytes each, such as CIFAR's binary layout."""
    return rows(read_bytes(path), width, path)


def rows(data: bytes, width: int, name: object) -> np.ndarray:
    """Bytes as rows of `width` bytes each."""
    if not data or len(data) % width:
        raise refuse(name, "binary", f"{len(data)} bytes are not rows of {width}")
    return np.frombuffer(data, np.uint8).reshape(-1, width)


def tar_files(
    path: Path, names: Collection[str] | None = None, limit: int = LIMIT
) -> Iterator[tuple[str, bytes]]:
    """Name and content of the regular files in a tar archive, or of those in `names`.

    limit  largest total size, bytes

    Nothing is written to disk; links, devices and sparse files are skipped.
    """
    with reading(path, "tar"), _untarred(path) as archive:
        room = min(RATIO * path.stat().st_size, limit)
        for member in archive:
            name = os.path.normpath(member.name).replace(os.sep, "/")
            if not member.isreg() or member.issparse() or (names is not None and name not in names):
                continue
            if member.size > room:
                raise refuse(path, "tar", f"{name} claims {member.size} bytes")
            room -= member.size
            opened = archive.extractfile(member)
            content = b"".join(iter(partial(opened.read, CHUNK), b"")) if opened else b""
            if len(content) < member.size:
                raise refuse(path, "tar", f"{name} ends after {len(content)} bytes")
            yield name, content


PACKERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
"""Magic bytes of compressed files, and the functions that open them."""


@contextmanager
def _untarred(path: Path) -> Iterator[tarfile.TarFile]:
    """A tar archive, maybe compressed; no single read is larger than CHUNK."""
    with path.open("rb") as raw:
        start = raw.read(8)
    opener = next((PACKERS[magic] for magic in PACKERS if start.startswith(magic)), open)
    with opener(path, "rb") as file, tarfile.open(fileobj=_Bounded(file), mode="r:") as archive:
        yield archive


class _Bounded(io.RawIOBase):
    """A file that refuses large reads: `tarfile` reads long names whole, whatever their size."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= CHUNK:
            raise ValueError(f"a header of {size} bytes")
        return self.file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


@contextmanager
def zip_member(path: Path, name: str, limit: int = LIMIT) -> Iterator[tuple[BinaryIO, int]]:
    """One member of a zip archive, open for reading, and its size; nothing is written to disk."""
    with reading(path, "zip"), zipfile.ZipFile(path) as archive:
        try:
            member = archive.getinfo(name)
        except KeyError:
            raise refuse(path, "zip", f"no member {name}") from None
        packed, unpacked = member.compress_size, member.file_size
        if packed > path.stat().st_size or unpacked > min(RATIO * packed + CHUNK, limit):
            raise refuse(path, "zip", f"{name} claims {packed} bytes that unpack to {unpacked}")
        with archive.open(member) as opened:
            yield cast(BinaryIO, opened), member.file_size
