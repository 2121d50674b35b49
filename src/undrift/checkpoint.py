"""Saving and restoring the state of a run, bit for bit and without pickle."""

from __future__ import annotations

import json
import os
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
    records: dict[str, Struct] = {"server": state.server}
    records |= {f"clients/{i}": me for i, me in state.clients.items()}
    tensors: dict[str, Tensor] = {"buffers": state.buffers}
    numbers: dict[str, Any] = {}
    for place, record in records.items():
        for name, value in record.leaves():
            (tensors if isinstance(value, Tensor) else numbers)[f"{place}/{name}"] = value
    for i, model in (state.models or {}).items():
        tensors[f"models/{i}"] = model
    if state.attention is not None:
        tensors["attention"] = torch.from_numpy(state.attention)
    facts = {
        "format": FORMAT,
        "t": state.t,
        "numbers": numbers,
        "clients": list(state.clients),
        "models": state.models is not None,
    }
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    own = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    save_file(own, partial, metadata={"undrift": json.dumps(facts)})
    os.replace(partial, path)


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
    records: dict[str, dict[str, Any]] = {f"clients/{i}": {} for i in facts["clients"]}
    for name, value in (tensors | facts["numbers"]).items():
        place, _, leaf = name.rpartition("/")
        if place:
            records.setdefault(place, {})[leaf] = value
    models = {int(n.removeprefix("models/")): v for n, v in tensors.items() if n[:7] == "models/"}
    attention = tensors.get("attention")
    return State(
        server=Struct.of_leaves(records["server"]),
        buffers=tensors["buffers"],
        t=facts["t"],
        clients={i: Struct.of_leaves(records[f"clients/{i}"]) for i in facts["clients"]},
        models=models if facts["models"] else None,
        attention=None if attention is None else attention.numpy(),
    )
