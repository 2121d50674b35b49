"""Storage of client state: in memory up to a budget, in files beyond that.

Each tensor of a record has a slab, a file of equal slots; a record has the same slot in every slab.
An in-memory table with a row for each client says which slot is current; `flush` copies it into an
index, which a checkpoint saves. So a checkpoint costs the records that changed and a small index,
not a copy of all clients' vectors.

Crash safety: a slot that an index refers to is never overwritten. A new version of a record goes to
a free slot, so every index restores bit for bit until `keep` is called without it, and a crash
loses only what was written after the last checkpoint. The order matters:

1. `flush`: write the slots, fsync the slabs, fsync the folder;
2. the caller saves the index durably;
3. `keep`: free the slots of older indices. Done before 2, a crash could find the old index's slots
   overwritten and no new index.
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
"""default memory budget of a store, bytes"""

OVERHEAD = 1024
"""approximate memory of a tensor beside its data, bytes"""

Index = dict[str, Tensor]
"""Snapshot of a store's table: record form, client ids, slots, checksums, ints and floats."""

_COLUMNS = [("ids", "int64"), ("slots", "int64"), ("fresh", "bool")]
"""slots: the slot of the current record, or -1 if it is only in the cache.
fresh: the slot was written after the last `flush`. No index refers to it, so it is free as soon as
the record is replaced. Any other slot stays pinned, even if replaced, until `keep`."""


class Store(Mapping[int, Struct]):
    """Records by client id, in ascending order.

    folder  where the slabs are; if not given, temporary files, created only if needed
    budget  bytes of records kept in memory; the least recently used are moved to the slabs

    A record is a `Struct` of tensors, ints and floats; all records have the same form. They are
    returned on the device of the last one that was put. Safe for many readers and one writer.
    """

    def __init__(self, folder: str | Path | None = None, budget: int = BUDGET) -> None:
        self.folder = None if folder is None else Path(folder)
        self.budget = budget
        self._lock = None if folder is None else Lock(folder)
        self._mutex = threading.Lock()
        self._places: dict[int, int] = {}  # client id -> row of the table
        self._cache: OrderedDict[int, Struct] = OrderedDict()  # least recently used first
        self._end = 0  # slots from here on have never been used
        self._free: list[int] = []  # slots below _end that neither the table nor an index uses
        self._slabs: list[Slab] = []  # opened when first needed
        self._set_form("{}")

    @classmethod
    def restore(cls, folder: str | Path, index: Index, budget: int = BUDGET) -> Store:
        """The store as it was when `flush` returned this index.

        Nothing in the folder is overwritten before the first `keep`: other indices stay valid.
        """
        store = cls(folder, budget)
        try:
            store._load_index(index)
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
            # Read without the mutex, so that readers do not wait for each other's disk access.
            # Meanwhile a writer may replace the record and reuse its slot; the row then differs.
            found = [slab.read(client, int(row["slots"])) for slab in self._slabs]
            with self._mutex:
                if row.tobytes() != self._table[place].tobytes():
                    continue
                for slab, (_, checksum), expected in zip(
                    self._slabs, found, row["sums"], strict=True
                ):
                    if checksum != expected:
                        raise slab.damage(client, "its checksum is wrong")
                record = self._record([tensor for tensor, _ in found], row)
                self._cache_record(client, record)
                return record.map(_to, self._devices)

    def __contains__(self, client: object) -> bool:
        return client in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        with self._mutex:
            return iter(sorted(self._places))

    def __deepcopy__(self, memo: dict[int, Any]) -> Store:
        """A copy without a folder: two stores cannot share slabs, as each reuses slots."""
        copy = Store(budget=self.budget)
        for client, record in self.items():
            copy.put(client, record)
        return copy

    def put(self, client: int, record: Struct) -> None:
        """Set a client's record."""
        with self._mutex:
            own = self._check(client, record)
            self._update_row(client, self._numbers_of(own), slot=-1)
            self._cache_record(client, own)

    def draft(self) -> Draft:
        """A transaction: records that are put together, on `commit`."""
        return Draft(self)

    def flush(self) -> Index:
        """Write all records to disk, durably, and return an index for `restore`.

        The index pins its slots until `keep` is called without it.
        """
        if self.folder is None:
            raise UndriftError("a store without a folder cannot be restored; use Store(folder)")
        with self._mutex:
            rows = self._table[: len(self)]
            for client in rows["ids"][rows["slots"] < 0].tolist():
                self._write(client)
            for slab in self._slabs:
                slab.sync()
            with writing(self.folder):
                sync(self.folder)  # the slabs' names, if they are new
            rows["fresh"] = False  # from here on the index refers to these slots
            index = {name: rows[name].copy() for name in self._columns}
        index["form"] = np.array(bytearray(self._form.encode()))
        return {name: torch.from_numpy(column) for name, column in index.items()}

    def keep(self, indices: Iterable[Index]) -> None:
        """Free all slots except those of these indices and of the current records.

        Call it only after the newest index is on disk, and with no draft open: a draft's slots are
        not in the table before `commit`.
        """
        used = [index["slots"].numpy() for index in indices]
        with self._mutex:
            used.append(self._table["slots"][: len(self)])
            slots = np.arange(self._end)[::-1]  # `_free` is popped at its end: lowest slot first
            self._free = slots[~np.isin(slots, np.concatenate(used))].tolist()

    def close(self) -> None:
        """Close the files and release the folder; what was not flushed is lost."""
        for slab in self._slabs:
            slab.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check(self, client: int, record: Struct) -> Struct:
        """The record as the store keeps it (see `_own`); raises if its form differs."""
        form, own = _form(client, record), record.map(_own)
        if not self._places:
            self._set_form(form)
        if form != self._form:
            raise UndriftError(
                f"client {client}: the record is {form}, but all others are {self._form}; "
                "all records of a store must have the same form"
            )
        self._devices = record.map(_device)  # where `__getitem__` returns records
        return own

    def _numbers_of(self, record: Struct) -> dict[str, Any]:
        """The ints and floats of a record by column: they are in the table, not in slabs."""
        leaves = dict(record.leaves())
        return {f"numbers.{name}": leaves[name] for name in self._numbers}

    def _update_row(self, client: int, numbers: dict[str, Any], slot: int) -> Any:
        """Point a client's row at a new record: in a slot, or in the cache only (-1)."""
        row = self._row(client)
        if row["fresh"]:  # else an index may refer to the old slot: only `keep` can free it
            self._free.append(int(row["slots"]))
        row["slots"], row["fresh"] = slot, slot >= 0
        for name, number in numbers.items():
            row[name] = number
        return row

    def _set_form(self, form: str) -> None:
        """Set the form of all records: table columns, slab fields and cache size follow from it."""
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
        self._room = self.budget // cost if cost else 0  # records that the cache may hold

    def _load_index(self, index: Index) -> None:
        """Fill the table from an index."""
        self._set_form(index["form"].numpy().tobytes().decode())
        for field in self._fields:
            if not field.name.replace(".", "_").isidentifier():  # it becomes a file name
                raise UndriftError(
                    f"{self.folder}: {field.name!r} is not a valid field name; "
                    "resume from another checkpoint"
                )
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
                slab.read(ids[place], last)  # fails now if a file is too short

    def _open(self) -> None:
        """Open the slabs; all slots in existing files count as used until `keep`."""
        self._slabs = [Slab(field, self.folder) for field in self._fields]
        self._end = max(map(len, self._slabs), default=0)

    def _row(self, client: int) -> Any:
        """A client's row of the table, added if missing."""
        if client not in self._places:
            place = len(self)
            if place == len(self._table):
                self._table = np.concatenate([self._table, np.zeros_like(self._table)])
            self._table[place]["ids"] = client
            self._places[client] = place
        return self._table[self._places[client]]

    def _record(self, tensors: Iterable[Tensor], row: Any) -> Struct:
        """A record from its tensors and its row of the table."""
        vectors = iter(tensors)
        numbers = (row[f"numbers.{name}"].item() for name in self._numbers)
        return self._template.map(
            lambda kind: next(numbers) if isinstance(kind, str) else next(vectors)
        )

    def _cache_record(self, client: int, record: Struct) -> None:
        """Put a record into the cache; write and evict the least recently used beyond its size."""
        self._cache[client] = record
        self._cache.move_to_end(client)
        while len(self._cache) > self._room:
            oldest = next(iter(self._cache))
            self._write(oldest)
            del self._cache[oldest]

    def _write(self, client: int) -> None:
        """Write a client's record to a free slot, if it is only in the cache."""
        row = self._row(client)
        if row["slots"] < 0:
            slot, row["sums"] = self._write_record(self._cache[client])
            row["slots"], row["fresh"] = slot, True

    def _write_record(self, record: Struct) -> tuple[int, list[int]]:
        """Write a record to a free slot; returns the slot and the checksums."""
        if len(self._slabs) < len(self._fields):
            self._open()
        if not self._free:
            self._end += 1
            self._free.append(self._end - 1)
        slot, leaves = self._free[-1], dict(record.leaves())
        sums = [slab.write(slot, leaves[slab.field.name]) for slab in self._slabs]
        return self._free.pop(), sums  # only now: if a write failed, the slot is still free


class Draft:
    """New records of a store, which take effect together on `commit`.

    They are held in memory up to the store's budget, in free slots beyond that. The slots of a
    draft that is never committed are lost until the next `keep`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: dict[int, Struct] = {}
        self._written: dict[int, tuple[dict[str, Any], int, list[int]]] = {}
        """client id -> numbers, slot and checksums"""

    def put(self, client: int, record: Struct) -> None:
        """Add a client's record; at most one for each client."""
        store = self._store
        if store._bare and client in store and not any(record.leaves()):
            return  # stateless algorithms: the store only records which clients took part
        self._records[client] = record
        if len(self._records) * _cost(record) > store.budget:
            with store._mutex:
                own = store._check(client, self._records.pop(client))
                self._written[client] = (store._numbers_of(own), *store._write_record(own))

    def commit(self) -> None:
        """Put all records into the store."""
        store = self._store
        with store._mutex:  # written ones need only a new row, their data stay in their slots
            for client, (numbers, slot, sums) in self._written.items():
                row = store._update_row(client, numbers, slot)
                row["sums"] = sums
                store._cache.pop(client, None)
        for client, record in self._records.items():
            store.put(client, record)


def _cost(record: Struct) -> int:
    """Bytes of a record's tensors in memory."""
    return sum(v.nbytes + OVERHEAD for _, v in record.leaves() if isinstance(v, Tensor))


def _form(client: int, record: Struct) -> str:
    """The form of a record as JSON: {"h": ["float32", 10], "t": "int64"}."""
    return _kinds_json(tuple(_kinds(f"client {client}: ", record)))


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
def _kinds_json(kinds: tuple[tuple[str, Any], ...]) -> str:
    def plain(kind: Any) -> Any:
        if kind in (int, float):
            return f"{kind.__name__}64"
        if kind and isinstance(kind[0], torch.dtype):
            return [str(kind[0]).removeprefix("torch."), *kind[1]]
        return {name: plain(inner) for name, inner in kind}

    return json.dumps(plain(kinds))


def _own(value: Any) -> Any:
    """A tensor on the CPU, not a view of larger storage; a number unchanged."""
    if not isinstance(value, Tensor):
        return value
    # No copy if possible: hooks never change a record in place. But a view would keep its whole
    # storage in memory, which the budget does not count.
    tensor = value.detach().cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _device(value: Any) -> Any:
    return value.device if isinstance(value, Tensor) else "cpu"


def _to(value: Any, device: Any) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value
