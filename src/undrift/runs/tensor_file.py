"""Reads safetensors files without torch, and computes the checksum of a checkpoint."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from undrift.system.files import Damaged

DTYPES = {
    **{f"F{bits}": f"torch.float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"torch.int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"torch.uint{bits}" for bits in (8, 16, 32, 64)},
    "BF16": "torch.bfloat16",
    "BOOL": "torch.bool",
    "C64": "torch.complex64",
    "F8_E4M3": "torch.float8_e4m3fn",
    "F8_E5M2": "torch.float8_e5m2",
}
"""safetensors' name of a type → torch's name."""


class Content(NamedTuple):
    """A tensor as bytes; `dtype` is torch's name."""

    dtype: str
    shape: list[int]
    data: Any  # a buffer


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Content]]:
    """The metadata and tensors of a file; raises `Damaged` if it is not a complete one."""
    try:
        data = memoryview(path.read_bytes())
        size = int.from_bytes(data[:8], "little")
        header = json.loads(bytes(data[8 : 8 + size]))
        metadata, end, tensors = header.pop("__metadata__", {}), 0, {}
        for name, about in header.items():
            first, last = about["data_offsets"]
            content = data[8 + size + first : 8 + size + last]
            tensors[name] = Content(DTYPES[about["dtype"]], about["shape"], content)
            end = max(end, last)
        if len(data) != 8 + size + end:
            raise ValueError(f"{len(data)} bytes, not {8 + size + end}")
    except OSError as error:
        raise Damaged(f"cannot be read ({error.strerror or error})") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"is not a complete safetensors file ({error})") from None
    return metadata, tensors


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file alone; raises `Damaged` if it has none."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(size, path.stat().st_size)))
        metadata: dict[str, str] = header["__metadata__"]
    except OSError as error:
        raise Damaged(f"cannot be read ({error.strerror or error})") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"is not a safetensors file with metadata ({error})") from None
    return metadata


def checksum(text: str, tensors: Mapping[str, Content]) -> str:
    """CRC-32 of a checkpoint: its metadata, and names, types, shapes and bytes of its tensors."""
    found = zlib.crc32(text.encode())
    for name, (dtype, shape, data) in sorted(tensors.items()):
        found = zlib.crc32(f"{name} {dtype} {list(shape)}".encode(), found)
        found = zlib.crc32(data, found)
    return f"{found:08x}"


def dead_bytes(path: Path) -> tuple[int, int]:
    """Bytes of client records beside a checkpoint that it does not refer to, and of the others."""
    _, tensors = read_tensors(path)
    live = 0
    for place in ("clients", "models"):
        if f"{place}.ids" in tensors:
            sizes = [size for _, size in record_fields(tensors[f"{place}.form"])]
            live += math.prod(tensors[f"{place}.ids"].shape) * sum(sizes)
    return sum(slab.stat().st_size for slab in path.parent.rglob("*.slab")) - live, live


def record_fields(form: Content) -> list[tuple[str, int]]:
    """The tensors of client records with this form in a checkpoint, and their sizes in bytes."""
    try:
        return list(_fields(json.loads(bytes(form.data))))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"has client records of no valid form ({error})") from None


def _fields(form: dict[str, Any], place: str = "") -> Iterator[tuple[str, int]]:
    for name, kind in form.items():
        if isinstance(kind, dict):
            yield from _fields(kind, f"{place}{name}.")
        elif isinstance(kind, list):
            bits = re.search(r"\d+", kind[0])
            yield f"{place}{name}", math.prod(kind[1:]) * (int(bits[0]) // 8 if bits else 1)
