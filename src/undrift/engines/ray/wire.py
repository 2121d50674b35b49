"""How jobs and results are packed: tensors as plain arrays, resident objects by name."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from ray import cloudpickle
from torch import Tensor

Parcel = list[np.ndarray]
"""A pickle and the arrays outside of it, which Ray moves without copying them in Python."""


def pack(value: Any, resident: Mapping[int, str] | None = None, *, views: bool = False) -> Parcel:
    """A value as arrays of bytes.

    resident  `id` → name of objects that the other side has
    views     whether tensors become views of shared memory on arrival, which must not be changed;
              else they are copied: torch ignores that such memory is read-only, and a write to it
              would kill the process
    """
    file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(file, resident or {}, views, buffers).dump(value)
    head = np.frombuffer(file.getbuffer(), np.uint8)
    return [head, *(np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers)]


def unpack(parcel: Parcel, resident: Mapping[str, Any] | None = None) -> Any:
    """The value in a parcel; `resident` has the objects that were named in it."""
    return _Unpickler(parcel, resident or {}).load()


def size(parcel: Parcel) -> int:
    """Bytes of a parcel."""
    return sum(part.nbytes for part in parcel)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    def __init__(
        self,
        file: io.BytesIO,
        resident: Mapping[int, str],
        views: bool,
        buffers: list[pickle.PickleBuffer],
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.resident, self.rebuild = resident, _view if views else _copy

    def persistent_id(self, one: Any) -> str | None:
        return self.resident.get(id(one))

    def reducer_override(self, one: Any) -> Any:
        if type(one) is Tensor and one.device.type == "cpu" and not one.requires_grad:
            flat = one.contiguous().view(-1).view(torch.uint8).numpy()
            return self.rebuild, (flat, one.dtype, tuple(one.shape))
        return super().reducer_override(one)


class _Unpickler(pickle.Unpickler):
    def __init__(self, parcel: Parcel, resident: Mapping[str, Any]) -> None:
        super().__init__(io.BytesIO(parcel[0].data), buffers=parcel[1:])
        self.resident = resident

    def persistent_load(self, name: str) -> Any:
        return self.resident[name]


def _copy(flat: np.ndarray, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    tensor.view(-1).view(torch.uint8).numpy()[:] = flat
    return tensor


def _view(flat: np.ndarray, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.frombuffer(flat, dtype=dtype).view(shape) if len(flat) else torch.empty(shape)
