"""Records on the wire: structs as Flower records, exactly and without pickle.

Vectors travel as raw bytes in an `ArrayRecord`, numbers as doubles and 64-bit integers in a
`ConfigRecord`. What arrives is compared with the form that the algorithm itself would send: names,
types, shapes and sizes must agree, or the message is refused with a sentence that says where.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undrift.config import UndriftError
from undrift.core import Struct

if TYPE_CHECKING:
    from flwr.app import Array, RecordDict

FACTS = "undrift"
RAW = "raw"
"""how arrays are serialised, in Flower's terms: the elements' bytes, in C order, little-endian"""

Fact = int | float | str | bool


class Refused(UndriftError):
    """A message is not what it must be; the text says what is wrong."""


def pack(facts: Mapping[str, Fact], **records: Struct) -> RecordDict:
    """Facts and records as the content of a message."""
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    content = RecordDict({FACTS: ConfigRecord(dict(facts))})
    for name, record in records.items():
        leaves = dict(record.leaves())
        vectors = {path: value for path, value in leaves.items() if isinstance(value, Tensor)}
        numbers = {path: value for path, value in leaves.items() if path not in vectors}
        content[f"{name}.vectors"] = ArrayRecord({k: _array(v) for k, v in vectors.items()})
        content[f"{name}.numbers"] = ConfigRecord(numbers)
    return content


def with_facts(content: RecordDict, facts: Mapping[str, Fact]) -> RecordDict:
    """The same records with other facts; the records are shared, not copied."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({**content, FACTS: ConfigRecord(dict(facts))})


def facts_in(content: RecordDict) -> dict[str, Any]:
    """The facts of a message."""
    try:
        return dict(content[FACTS].items())
    except (KeyError, AttributeError, TypeError):
        raise Refused("the message is not one of undrift") from None


def unpack(content: RecordDict, name: str, form: Struct | None = None) -> Struct:
    """A record of a message.

    form  what it must look like: tensors for vectors (without storage, on torch's meta device, will
          do) and any numbers for numbers; if not given, it may have any form
    """
    try:
        arrays: dict[str, Any] = dict(content[f"{name}.vectors"].items())
        numbers: dict[str, Any] = dict(content[f"{name}.numbers"].items())
    except (KeyError, AttributeError, TypeError):
        raise Refused(f"{name} is missing") from None
    if form is not None:
        _check(name, arrays, numbers, form)
    leaves: dict[str, Any] = {k: _tensor(f"{name}.{k}", array) for k, array in arrays.items()}
    return _tree(leaves | numbers)


def _array(tensor: Tensor) -> Array:
    from flwr.app import Array

    plain = tensor.detach().cpu().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return Array(_dtype(tensor), tuple(tensor.shape), RAW, data)


def _tensor(place: str, array: Array) -> Tensor:
    dtype = getattr(torch, array.dtype, None)
    if array.stype != RAW or not isinstance(dtype, torch.dtype):
        raise Refused(f"{place} is {array.stype} of {array.dtype}, not {RAW} bytes of a known type")
    shape = tuple(array.shape)
    expected = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or len(array.data) != expected:
        raise Refused(
            f"{place} has {len(array.data)} bytes, and its shape {_shown(shape)} needs {expected}"
        )
    # In torch's own memory, which is aligned: the rounding of products may depend on addresses.
    tensor = torch.empty(shape, dtype=dtype)
    if tensor.numel():
        raw = torch.frombuffer(bytearray(array.data), dtype=torch.uint8)
        tensor.view(-1).view(torch.uint8).copy_(raw)
    return tensor


def _check(
    name: str, arrays: Mapping[str, Array], numbers: Mapping[str, Any], form: Struct
) -> None:
    """Raise unless a record has this form."""
    expected = dict(form.leaves())
    for path in expected.keys() - arrays.keys() - numbers.keys():
        raise Refused(f"{name}.{path} is missing")
    for path in (arrays.keys() | numbers.keys()) - expected.keys():
        raise Refused(f"{name}.{path} is not asked for")
    for path, value in expected.items():
        place = f"{name}.{path}"
        if not isinstance(value, Tensor):
            if type(numbers.get(path)) not in (int, float):
                raise Refused(f"{place} is not a number")
            continue
        if path not in arrays:
            raise Refused(f"{place} is not a vector")
        found, shape = arrays[path], tuple(value.shape)
        if tuple(found.shape) != shape:
            raise Refused(f"{place} has the shape {_shown(found.shape)}, not {_shown(shape)}")
        if found.dtype != _dtype(value):
            raise Refused(f"{place} is {found.dtype}, not {_dtype(value)}")


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shown(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"


def _tree(leaves: Mapping[str, Any]) -> Struct:
    """A record from dotted paths and values."""
    inner: dict[str, dict[str, Any]] = {}
    fields: dict[str, Any] = {}
    for path, value in leaves.items():
        first, _, rest = path.partition(".")
        if rest:
            fields.setdefault(first, None)  # keeps the place
            inner.setdefault(first, {})[rest] = value
        else:
            fields[first] = value
    return Struct(
        **{name: _tree(inner[name]) if name in inner else v for name, v in fields.items()}
    )
