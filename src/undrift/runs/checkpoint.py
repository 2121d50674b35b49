"""Saving and restoring the state of a run, bit for bit and without pickle."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undrift.config import UndriftError
from undrift.federation.rounds import State
from undrift.runs.record_file import put_together, read, take_apart, write
from undrift.training.memory import BUDGET, Index, Store

FORMAT = 2


def save(state: State, path: str | Path) -> None:
    """Write a state to a file, atomically.

    Records of a store with a folder stay in that folder, and the file holds the store's index;
    records of a store without a folder go into the file.
    """
    path = Path(path)
    # A kill at any point is safe: `_take_rows` writes and syncs the records before the index that
    # refers to them, in slots that no older checkpoint uses, and the file appears by a rename.
    tensors: dict[str, Tensor] = {"buffers": state.buffers}
    facts = {
        "format": FORMAT,
        "t": state.t,
        "notes": state.notes,
        "server": take_apart(state.server, "server", tensors),
        "clients": _take_rows(state.clients, "clients", path, tensors),
        "models": None
        if state.models is None
        else _take_rows(state.models, "models", path, tensors),
    }
    if state.everyone is not None:
        tensors["everyone"] = state.everyone
    if state.attention is not None:
        tensors["attention"] = torch.from_numpy(state.attention)
    write(path, facts, tensors)


def load(path: str | Path, budget: int = BUDGET) -> State:
    """Read a state back; `budget` is the memory budget of its stores, in bytes."""
    path = Path(path)
    facts, tensors = _read(path)
    attention = tensors.get("attention")
    state = State(
        server=put_together(facts["server"], "server", tensors),
        buffers=tensors["buffers"],
        t=facts["t"],
        clients=_put_rows(facts["clients"], "clients", path, tensors, budget),
        everyone=tensors.get("everyone"),
        attention=None if attention is None else attention.numpy(),
        notes=facts.get("notes", {}),
    )
    if facts["models"] is not None:
        try:
            state.models = _put_rows(facts["models"], "models", path, tensors, budget)
        except BaseException:
            state.close()
            raise
    return state


def keep(state: State, paths: Iterable[str | Path]) -> None:
    """Free the records of the stores that neither this state nor these checkpoints refer to."""
    files = [_read(Path(path))[1] for path in paths]
    for place, store in (("clients", state.clients), ("models", state.models)):
        if store is not None and store.folder is not None:
            store.keep(_index(place, file) for file in files if f"{place}.slots" in file)


def compact(path: Path) -> None:
    """Copy the client records of a checkpoint to new slabs, and remove the old ones.

    No other checkpoint may refer to them. A kill leaves the old slabs or the new ones, and at worst
    some that nothing refers to, which go the next time.
    """
    state = load(path)
    old = {"clients": state.clients, "models": state.models}
    new: dict[str, Store] = {}
    try:
        for place, store in old.items():
            if store is not None and store.folder is not None:
                name = store.folder.name
                twin = store.folder.with_name(name[:-2] if name.endswith(".1") else f"{name}.1")
                shutil.rmtree(twin, ignore_errors=True)
                new[place] = Store(twin, store.budget)
                for client, record in store.items():
                    new[place].put(client, record)
        save(replace(state, **new), path)  # type: ignore[arg-type]
    finally:
        for store in (*old.values(), *new.values()):
            if store is not None:
                store.close()
    for place in new:
        if (store := old[place]) is not None and store.folder is not None:
            shutil.rmtree(store.folder)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and tensors of a checkpoint, after checking its checksum and format."""
    facts, tensors = read(path, "checkpoint")
    if facts.get("format") != FORMAT:
        raise UndriftError(f"{path} is not a checkpoint of this version of undrift")
    return facts, tensors


def _take_rows(store: Store, place: str, path: Path, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A store as JSON: the path of its folder, or all its records; tensors go to `tensors`."""
    if store.folder is None:
        return {"rows": {i: take_apart(me, f"{place}.{i}", tensors) for i, me in store.items()}}
    folder = os.path.relpath(_beside(path, store.folder.absolute()), path.parent)
    tensors |= {f"{place}.{name}": column for name, column in store.flush().items()}
    return {"folder": folder}


def _beside(path: Path, folder: str | Path) -> Path:
    """The path of a store's folder. It must be inside the checkpoint's: a resumed run writes there,
    and a checkpoint from elsewhere must not choose where."""
    within = path.parent / folder
    if not within.resolve().is_relative_to(path.parent.resolve()):
        raise UndriftError(
            f"{path}: the folder of the clients' records is {str(folder)!r}, outside of "
            f"{str(path.parent)!r}; use a folder inside it"
        )
    return within


def _put_rows(
    facts: dict[str, Any], place: str, path: Path, tensors: dict[str, Tensor], budget: int
) -> Store:
    if "folder" in facts:
        return Store.restore(_beside(path, facts["folder"]), _index(place, tensors), budget)
    store = Store(budget=budget)
    for i, parts in facts["rows"].items():
        store.put(int(i), put_together(parts, f"{place}.{i}", tensors))
    return store


def _index(place: str, tensors: dict[str, Tensor]) -> Index:
    """The index of a store among the tensors of a checkpoint."""
    inside = f"{place}."
    return {name.removeprefix(inside): t for name, t in tensors.items() if name.startswith(inside)}
