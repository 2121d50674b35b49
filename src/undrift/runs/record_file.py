"""Records in a file of tensors: a JSON text and tensors under one checksum, without pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import Tensor

from undrift.config import UndriftError
from undrift.core import Struct
from undrift.runs.tensor_file import Content, checksum
from undrift.system.files import Damaged, replace_file


def write(path: Path, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write a file, atomically and durably."""
    own = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    text = json.dumps(facts)
    replace_file(path, serialize(own, {"undrift": text, "checksum": _checksum(text, own)}))


def read(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and tensors of a file, which must match its checksum; `kind` is for errors."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Cloned into torch's aligned memory: the rounding of products may depend on addresses
            # (undrift.arithmetic).
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (OSError, RuntimeError) as error:  # RuntimeError: too many open files
        raise UndriftError(f"{path} cannot be read as a {kind}: {error}") from None
    except SafetensorError as error:
        raise Damaged(f"{path} cannot be read as a {kind}: {error}; give another one") from None
    text = metadata.get("undrift", "")
    if metadata.get("checksum") != _checksum(text, tensors):
        raise Damaged(f"{path} is damaged: its checksum is wrong or missing; give another {kind}")
    facts: dict[str, Any] = json.loads(text)
    return facts, tensors


def take_apart(record: Struct, place: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A record as JSON, with null in place of each tensor; the tensors go to `tensors`."""
    parts: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Struct):
            parts[name] = take_apart(value, f"{place}.{name}", tensors)
        elif isinstance(value, Tensor):
            parts[name], tensors[f"{place}.{name}"] = None, value
        else:
            parts[name] = value
    return parts


def put_together(parts: dict[str, Any], place: str, tensors: dict[str, Tensor]) -> Struct:
    """The record that `take_apart` took apart."""
    fields: dict[str, Any] = {}
    for name, value in parts.items():
        if isinstance(value, dict):
            fields[name] = put_together(value, f"{place}.{name}", tensors)
        else:
            fields[name] = tensors[f"{place}.{name}"] if value is None else value
    return Struct(**fields)


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    return checksum(
        text,
        {
            name: Content(str(tensor.dtype), list(tensor.shape), _bytes(tensor))
            for name, tensor in tensors.items()
        },
    )


def _bytes(tensor: Tensor) -> Any:
    """The bytes of a tensor; an empty one may have strides that cannot be viewed."""
    if not tensor.numel():
        return b""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
