"""What clients remember: in memory while it fits, in files beyond that.

Each tensor of a record has a slab, a file of equal slots; a row is one client's slot in every slab.
Rows are never changed in place: a new version goes to a slot that nobody refers to. So whatever an
index describes (`Store.flush`) stays readable, bit for bit, until `Store.keep` lets go of it, and a
crash loses what came after the last checkpoint but nothing else.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.config import UndriftError
from undrift.core import Struct
from undrift.system.files import sync, writing
from undrift.system.lock import Lock
from undrift.training.slab import Field, Slab

BUDGET = 256 * 2**20
OVERHEAD = 1024
"""bytes that a tensor takes in memory beside its numbers, about"""

Index = dict[str, Tensor]
"""The rows of a store at one moment: their form, ids, slots, checksums and numbers."""

_COLUMNS = [("ids", "int64"), ("slots", "int64"), ("fresh", "bool")]


class Store(Mapping[int, Struct]):
    """Records by client, in ascending order of their ids.

    folder  where the slabs are; if not given, temporary files, made only if needed
    budget  bytes of records kept in memory; the least recently used go to the slabs

    A record is a `Struct` of tensors, ints and floats; all records have the same form. They come
    back on the device that the last one came from. Any thread may read while another one writes.
    """

    def __init__(self, folder: str | Path | None = None, budget: int = BUDGET) -> None:
        self.folder = None if folder is None else Path(folder)
        self.budget = budget
        self._lock = None if folder is None else Lock(folder)
        self._mutex = threading.Lock()
        self._places: dict[int, int] = {}  # of clients in the table
        self._cache: OrderedDict[int, Struct] = OrderedDict()  # least recently used first
        self._end = 0  # slots from here on have never been used
        self._free: list[int] = []
        self._slabs: list[Slab] = []  # opened when first needed
        self._settle("{}")

    @classmethod
    def restore(cls, folder: str | Path, index: Index, budget: int = BUDGET) -> Store:
        """The store as it was when `flush` returned this index.

        Nothing that lies in the folder is overwritten before `keep` says what may be.
        """
        store = cls(folder, budget)
        try:
            store._adopt(index)
        except BaseException:
            store.close()
            raise
        return store

    def __getitem__(self, client: int) -> Struct:
        if self._bare and client in self._places:
            return self._template
        while True:
            with self._mutex:
                place = self._places[client]
                if client in self._cache:
                    self._cache.move_to_end(client)
                    return self._cache[client].map(_to, self._devices)
                row = self._table[place].copy()
            found = [slab.read(client, int(row["slots"])) for slab in self._slabs]
            with self._mutex:
                if row.tobytes() != self._table[place].tobytes():
                    continue  # another thread has put a new record meanwhile
                for slab, (_, checksum), expected in zip(
                    self._slabs, found, row["sums"], strict=True
                ):
                    if checksum != expected:
                        raise slab.damage(client, "its checksum is wrong")
                record = self._record([tensor for tensor, _ in found], row)
                self._admit(client, record)
                return record.map(_to, self._devices)

    def __contains__(self, client: object) -> bool:
        return client in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        with self._mutex:
            return iter(sorted(self._places))

    def __deepcopy__(self, memo: dict[int, Any]) -> Store:
        """The same records in a store without a folder."""
        copy = Store(budget=self.budget)
        for client, record in self.items():
            copy.put(client, record)
        return copy

    def put(self, client: int, record: Struct) -> None:
        """Remember this record of a client instead of its last one."""
        with self._mutex:
            own = self._accept(client, record)
            self._replace(client, self._told(own), slot=-1)
            self._admit(client, own)

    def draft(self) -> Draft:
        """Records that are to be remembered together."""
        return Draft(self)

    def flush(self) -> Index:
        """Write what is only in memory, wait for the disk, and describe the rows as they are now.

        The index can be restored until `keep` is called without it.
        """
        if self.folder is None:
            raise UndriftError("a store without a folder cannot be restored; give Store(folder)")
        with self._mutex:
            rows = self._table[: len(self)]
            for client in rows["ids"][rows["slots"] < 0].tolist():
                self._write(client)
            for slab in self._slabs:
                slab.sync()
            with writing(self.folder):
                sync(self.folder)
            rows["fresh"] = False
            index = {name: rows[name].copy() for name in self._columns}
        index["form"] = np.array(bytearray(self._form.encode()))
        return {name: torch.from_numpy(column) for name, column in index.items()}

    def keep(self, indices: Iterable[Index]) -> None:
        """Make all slots free but those of these indices and of the rows as they are now."""
        used = [index["slots"].numpy() for index in indices]
        with self._mutex:
            used.append(self._table["slots"][: len(self)])
            slots = np.arange(self._end)[::-1]  # so that the lowest is taken first
            self._free = slots[~np.isin(slots, np.concatenate(used))].tolist()

    def close(self) -> None:
        """Let go of the files; what was not flushed is forgotten."""
        for slab in self._slabs:
            slab.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _accept(self, client: int, record: Struct) -> Struct:
        """A record in memory of its own, if it has the form of all others."""
        form, own = _form(client, record), record.map(_own)
        if not self._places:
            self._settle(form)
        if form != self._form:
            raise UndriftError(
                f"client {client}: the record is {form}, but all others are {self._form}; "
                "records in a store must have the same form"
            )
        self._devices = record.map(_device)
        return own

    def _told(self, record: Struct) -> dict[str, Any]:
        """The numbers of a record, which are in the table and not in slabs."""
        leaves = dict(record.leaves())
        return {f"numbers.{name}": leaves[name] for name in self._numbers}

    def _replace(self, client: int, numbers: dict[str, Any], slot: int) -> Any:
        """Let a client's line tell of another record: in a slot, or in memory only."""
        row = self._row(client)
        if row["fresh"]:
            self._free.append(int(row["slots"]))
        row["slots"], row["fresh"] = slot, slot >= 0
        for name, number in numbers.items():
            row[name] = number
        return row

    def _settle(self, form: str) -> None:
        """Decide what all records look like."""
        self._form = form
        self._template: Struct = json.loads(form, object_hook=lambda fields: Struct(**fields))
        self._devices = self._template.map(_device)
        kinds = dict(self._template.leaves())
        self._numbers = [name for name, kind in kinds.items() if isinstance(kind, str)]
        self._fields = [
            Field(name, getattr(torch, kind[0]), tuple(kind[1:]))
            for name, kind in kinds.items()
            if name not in self._numbers
        ]
        numbers = [(f"numbers.{name}", kinds[name]) for name in self._numbers]
        sums = ("sums", "int64", (len(self._fields),))
        self._bare = not kinds
        self._table = np.zeros(1, [*_COLUMNS, *numbers, sums])
        self._columns = ["ids", "slots", "sums", *(name for name, _ in numbers)]
        cost = sum(field.nbytes + OVERHEAD for field in self._fields)
        self._room = self.budget // cost if cost else 0

    def _adopt(self, index: Index) -> None:
        """Take over the rows of an index."""
        self._settle(index["form"].numpy().tobytes().decode())
        for field in self._fields:
            if not field.name.replace(".", "_").isidentifier():  # it becomes the name of a file
                raise UndriftError(f"{self.folder}: {field.name!r} is no name of a field")
        ids = index["ids"].tolist()
        self._places = {client: place for place, client in enumerate(ids)}
        self._table = np.zeros(max(len(ids), 1), self._table.dtype)
        for name in self._columns:
            self._table[name][: len(ids)] = index[name].numpy()
        if ids:
            self._open()
            place = int(self._table["slots"].argmax())
            last = int(self._table["slots"][place])
            self._end = max(self._end, last + 1)
            for slab in self._slabs:
                slab.read(ids[place], last)  # a file that is too short is refused at once

    def _open(self) -> None:
        """Open the slabs; whatever they hold counts as used."""
        self._slabs = [Slab(field, self.folder) for field in self._fields]
        self._end = max(map(len, self._slabs), default=0)

    def _row(self, client: int) -> Any:
        """A client's line in the table, a new one if it has none."""
        if client not in self._places:
            place = len(self)
            if place == len(self._table):
                self._table = np.concatenate([self._table, np.zeros_like(self._table)])
            self._table[place]["ids"] = client
            self._places[client] = place
        return self._table[self._places[client]]

    def _record(self, tensors: Iterable[Tensor], row: Any) -> Struct:
        """A record from its tensors and its line in the table."""
        vectors = iter(tensors)
        numbers = (row[f"numbers.{name}"].item() for name in self._numbers)
        return self._template.map(
            lambda kind: next(numbers) if isinstance(kind, str) else next(vectors)
        )

    def _admit(self, client: int, record: Struct) -> None:
        """Keep a record in memory, and write what has no more room there."""
        self._cache[client] = record
        self._cache.move_to_end(client)
        while len(self._cache) > self._room:
            oldest = next(iter(self._cache))
            self._write(oldest)
            del self._cache[oldest]

    def _write(self, client: int) -> None:
        """Write a record that is only in memory to a free slot."""
        row = self._row(client)
        if row["slots"] < 0:
            slot, row["sums"] = self._write_record(self._cache[client])
            row["slots"], row["fresh"] = slot, True

    def _write_record(self, record: Struct) -> tuple[int, list[int]]:
        """Write a record to a free slot; the slot and the checksums."""
        if len(self._slabs) < len(self._fields):
            self._open()
        if not self._free:
            self._end += 1
            self._free.append(self._end - 1)
        slot, leaves = self._free[-1], dict(record.leaves())
        sums = [slab.write(slot, leaves[slab.field.name]) for slab in self._slabs]
        return self._free.pop(), sums


class Draft:
    """New records of a store, which count from `commit` on, all at once.

    As many as the store's budget has room for are in memory, the others in free slots.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: dict[int, Struct] = {}
        self._written: dict[int, tuple[dict[str, Any], int, list[int]]] = {}

    def put(self, client: int, record: Struct) -> None:
        """Take down a record; one for each client."""
        store = self._store
        if store._bare and client in store and not any(record.leaves()):
            return  # of algorithms without memory, only who took part is remembered
        self._records[client] = record
        if len(self._records) * _cost(record) > store.budget:
            with store._mutex:
                own = store._accept(client, self._records.pop(client))
                self._written[client] = (store._told(own), *store._write_record(own))

    def commit(self) -> None:
        """Remember all records instead of the clients' last ones."""
        store = self._store
        with store._mutex:
            for client, (numbers, slot, sums) in self._written.items():
                row = store._replace(client, numbers, slot)
                row["sums"] = sums
                store._cache.pop(client, None)
        for client, record in self._records.items():
            store.put(client, record)


def _cost(record: Struct) -> int:
    """Bytes that a record takes in memory; numbers are in the table anyway."""
    return sum(v.nbytes + OVERHEAD for _, v in record.leaves() if isinstance(v, Tensor))


def _form(client: int, record: Struct) -> str:
    """What a record looks like: {"h": ["float32", 10], "t": "int64"}."""
    return _described(tuple(_kinds(f"client {client}: ", record)))


def _kinds(place: str, record: Struct) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Tensor):
            yield name, (value.dtype, value.shape)
        elif isinstance(value, Struct):
            yield name, tuple(_kinds(f"{place}{name}.", value))
        elif type(value) is float or (type(value) is int and -(2**63) <= value < 2**63):
            yield name, type(value)
        else:
            raise UndriftError(
                f"{place}{name}={value!r} cannot be stored; give a tensor, a float or an "
                "int of at most 64 bits"
            )


@lru_cache
def _described(kinds: tuple[tuple[str, Any], ...]) -> str:
    """The same as text."""

    def told(kind: Any) -> Any:
        if kind in (int, float):
            return f"{kind.__name__}64"
        if kind and isinstance(kind[0], torch.dtype):
            return [str(kind[0]).removeprefix("torch."), *kind[1]]
        return {name: told(inner) for name, inner in kind}

    return json.dumps(told(kinds))


def _own(value: Any) -> Any:
    """A tensor on the CPU that takes no more memory than it needs; a number as it is."""
    if not isinstance(value, Tensor):
        return value
    tensor = value.detach().cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _device(value: Any) -> Any:
    return value.device if isinstance(value, Tensor) else "cpu"


def _to(value: Any, device: Any) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value
