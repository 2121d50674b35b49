"""Saving and restoring the state of a run, bit for bit and without pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from undrift.config import UndriftError
from undrift.core import Struct
from undrift.rounds import State

FORMAT = 1


def save(state: State, path: str | Path) -> None:
    """Write a state to a file, all of it or nothing."""
    tensors: dict[str, Tensor] = {"buffers": state.buffers}
    facts = {
        "format": FORMAT,
        "t": state.t,
        "server": _take_apart(state.server, "server", tensors),
        "clients": {i: _take_apart(me, f"clients.{i}", tensors) for i, me in state.clients.items()},
        "models": None if state.models is None else list(state.models),
    }
    tensors |= {f"models.{i}": model for i, model in (state.models or {}).items()}
    if state.attention is not None:
        tensors["attention"] = torch.from_numpy(state.attention)
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    own = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    save_file(own, partial, metadata={"undrift": json.dumps(facts)})
    partial.replace(path)


def load(path: str | Path) -> State:
    """Read a state back."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("undrift", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise UndriftError(f"{path} cannot be read as a checkpoint: {error}") from None
    if not facts or facts["format"] != FORMAT:
        raise UndriftError(f"{path} is not a checkpoint of this version of undrift")
    models = facts["models"]
    attention = tensors.get("attention")
    return State(
        server=_put_together(facts["server"], "server", tensors),
        buffers=tensors["buffers"],
        t=facts["t"],
        clients={
            int(i): _put_together(me, f"clients.{i}", tensors) for i, me in facts["clients"].items()
        },
        models=None if models is None else {i: tensors[f"models.{i}"] for i in models},
        attention=None if attention is None else attention.numpy(),
    )


def _take_apart(record: Struct, place: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A record as JSON, null standing for a tensor, which goes to `tensors`."""
    parts: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Struct):
            parts[name] = _take_apart(value, f"{place}.{name}", tensors)
        elif isinstance(value, Tensor):
            parts[name], tensors[f"{place}.{name}"] = None, value
        else:
            parts[name] = value
    return parts


def _put_together(parts: dict[str, Any], place: str, tensors: dict[str, Tensor]) -> Struct:
    fields: dict[str, Any] = {}
    for name, value in parts.items():
        if isinstance(value, dict):
            fields[name] = _put_together(value, f"{place}.{name}", tensors)
        else:
            fields[name] = tensors[f"{place}.{name}"] if value is None else value
    return Struct(**fields)
